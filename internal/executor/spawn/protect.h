#ifndef MONOPOD_SPAWN_PROTECT_H
#define MONOPOD_SPAWN_PROTECT_H

#include "plan.h"

// protect.c
void protect(const struct plan *p);

#endif
