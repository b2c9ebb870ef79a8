#ifndef MONOPOD_SPAWN_INSIDE_H
#define MONOPOD_SPAWN_INSIDE_H

#include "plan.h"

// inside.c
void open_streams(const struct plan *p);
void mount_console(void);
void make_cwd(const struct plan *p);
const char *find_program(const struct plan *p);
const char *find_home(uint32_t uid);

#endif
