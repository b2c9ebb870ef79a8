#ifndef MONOPOD_SPAWN_ZYGOTE_H
#define MONOPOD_SPAWN_ZYGOTE_H

#include <sys/resource.h>

// zygote.c
extern struct rlimit monopod_nofile, monopod_memlock; // limits that this program was started with

#endif
