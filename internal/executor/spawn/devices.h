#ifndef MONOPOD_SPAWN_DEVICES_H
#define MONOPOD_SPAWN_DEVICES_H

#include "plan.h"

// devices.c
int *open_devices(const struct plan *p); // before the host is out of reach; NULL: nodes are made
void fill_dev(const struct plan *p, int root, const int *host); // host is what open_devices has returned

#endif
