//go:build cgo

// Mounts by descriptors: no path of the host or of the container is ever followed twice.
#define _GNU_SOURCE
#include "mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif

int attach(int tree, int onto)
{
	return (int)syscall(SYS_move_mount, tree, "", onto, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
}

int copy_tree(int dir, const char *path, unsigned flags)
{
	return (int)syscall(SYS_open_tree, dir, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (*path ? 0 : AT_EMPTY_PATH) | flags);
}

int set_attr(int tree, unsigned at_flags, uint64_t set, uint64_t clear, uint64_t propagation)
{
	if (!set && !clear && !propagation)
		return 0;
	struct mount_attr attr = {.attr_set = set, .attr_clr = clear, .propagation = propagation};
	return (int)syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | at_flags, &attr, sizeof attr);
}

static int set_options(int fs, char *options)
{
	for (char *next, *o = options; o && *o; o = next) {
		next = strchr(o, ',');
		if (next)
			*next++ = 0;
		char *value = strchr(o, '=');
		if (value)
			*value++ = 0;
		if (*o && syscall(SYS_fsconfig, fs, value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG, o, value, 0) != 0)
			return -1;
	}
	return 0;
}

// new_fs makes a file system, detached. options is the part of mount options that is for the file system itself, label the SELinux label of
// all its files; pidns the PID namespace that a proc file system shows, -1 that of this process.
int new_fs(const char *kind, const char *source, const char *options, const char *label, uint64_t attrs, int pidns)
{
	int fs = (int)syscall(SYS_fsopen, kind, FSOPEN_CLOEXEC);
	if (fs < 0)
		return -1;
	char *own = strdup(options);
	int tree = -1;
	if (own && (!*source || syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "source", source, 0) == 0) && set_options(fs, own) == 0 &&
	    (!*label || syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "context", label, 0) == 0) &&
	    (pidns < 0 || syscall(SYS_fsconfig, fs, FSCONFIG_SET_FD, "pidns", NULL, pidns) == 0) &&
	    // The file system too, not only this mount of it.
	    (!(attrs & MOUNT_ATTR_RDONLY) || syscall(SYS_fsconfig, fs, FSCONFIG_SET_FLAG, "ro", NULL, 0) == 0) &&
	    syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		tree = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, (unsigned)attrs);
	int error = errno;
	free(own);
	close(fs);
	errno = error;
	return tree;
}
