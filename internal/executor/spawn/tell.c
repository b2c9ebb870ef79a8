//go:build cgo

// What a start process tells: messages to the worker, over its status socket, and the reason for which it ends.
#define _GNU_SOURCE
#include "tell.h"

#include "plan.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char fault = STATUS_BROKEN;
static int told; // what goes wrong from here on is written to stderr, too
static char step[4224]; // what is being done, and a colon

void program_fault(void) { fault = STATUS_ERROR; }

void place_fault(void) { fault = STATUS_BROKEN; }

void speak_up(void) { told = 1; }

void doing(const char *what, const char *a, const char *b)
{
	if (*what)
		snprintf(step, sizeof step, "%s%s%s%s%s: ", what, *a ? " " : "", a, *b ? " at " : "", b);
	else
		step[0] = 0;
}

// tell sends a message to the worker, with a descriptor if there is one. Where nobody listens any more, nobody wants this process.
void tell(const void *message, unsigned long size, int fd)
{
	if (fd < 0) { // by a call that filters for containers have always had to allow
		if (sendto(STATUS_FD, message, size, MSG_NOSIGNAL, NULL, 0) < 0)
			_exit(255);
		return;
	}
	struct iovec iov = {(void *)message, size};
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	memset(&control, 0, sizeof control);
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.room};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	if (sendmsg(STATUS_FD, &msg, MSG_NOSIGNAL) < 0)
		_exit(255);
}

static __attribute__((noreturn)) void give_up(char *text, int n, int most)
{
	if (n < 0)
		n = 0;
	if (n > most)
		n = most;
	text[0] = fault;
	if (told) {
		text[n + 1] = '\n';
		signal(SIGPIPE, SIG_IGN);
		if (write(2, text + 1, (size_t)n + 1) < 0) {
			// Nobody reads it: the worker is told.
		}
	}
	tell(text, (size_t)n + 1, -1);
	_exit(255);
}

void fail(const char *what, const char *arg)
{
	char text[4608], why[128];
	snprintf(why, sizeof why, "%s", strerror(errno));
	if (why[0] >= 'A' && why[0] <= 'Z' && why[1] >= 'a') // as everything else that reports errors here
		why[0] += 'a' - 'A';
	int n = snprintf(text + 1, sizeof text - 2, "%s%s%s%s%s%s", step, what, *arg && *what ? " " : "", arg, *what || *arg ? ": " : "", why);
	give_up(text, n, (int)sizeof text - 3);
}

void refuse(const char *why)
{
	char text[4608];
	int n = snprintf(text + 1, sizeof text - 2, "%s%s", step, why);
	give_up(text, n, (int)sizeof text - 3);
}
