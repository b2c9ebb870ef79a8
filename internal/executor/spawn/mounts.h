#ifndef MONOPOD_SPAWN_MOUNTS_H
#define MONOPOD_SPAWN_MOUNTS_H

#include <stdint.h>

// mounts.c
int attach(int tree, int onto);
int copy_tree(int dir, const char *path, unsigned flags);
int set_attr(int tree, unsigned at_flags, uint64_t set, uint64_t clear, uint64_t propagation);
int new_fs(const char *kind, const char *source, const char *options, const char *label, uint64_t attrs, int pidns);

#endif
