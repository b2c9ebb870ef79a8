#ifndef MONOPOD_SPAWN_PLACE_H
#define MONOPOD_SPAWN_PLACE_H

#include "plan.h"

// place.c
void make_place(const struct plan *p);
void join_place(void);
// complete_mounts makes the mounts that only a process in the PID namespace can make, and what lies on them. With early, it is not in there yet: the
// return value says whether it could be done all the same.
int complete_mounts(const struct plan *p, int early);

#endif
