#ifndef MONOPOD_SPAWN_START_H
#define MONOPOD_SPAWN_START_H

// start carries a plan out, and never returns. ntasks descriptors from CGROUP_FD on are files "tasks".
void start(int ntasks) __attribute__((noreturn));

#endif
