#ifndef MONOPOD_SPAWN_TELL_H
#define MONOPOD_SPAWN_TELL_H

// tell.c: what a start process has to say. All others of its files call this one, and it calls none.

// fail tells what went wrong, by errno, and ends the process; refuse gives the reason in words.
void fail(const char *what, const char *arg) __attribute__((noreturn));
void refuse(const char *why) __attribute__((noreturn));
// doing says what is being done until further notice: it precedes the messages.
void doing(const char *what, const char *a, const char *b);
// program_fault says that it is the program's fault from here on, and place_fault that it is that of its place, as at the begin.
void program_fault(void);
void place_fault(void);
// speak_up has what goes wrong from here on written to stderr, too.
void speak_up(void);
void tell(const void *message, unsigned long size, int fd);

#endif
