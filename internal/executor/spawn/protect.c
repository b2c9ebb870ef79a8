//go:build cgo

// What of a container's files its processes are not to change, or to see.
#define _GNU_SOURCE
#include "protect.h"

#include "mounts.h"
#include "paths.h"
#include "plan.h"
#include "tell.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

// make_read_only covers a path with itself, read-only. One that is not there is none to protect.
static void make_read_only(const char *path)
{
	int at = open_plain(path, O_PATH);
	if (at < 0 && (errno == ENOENT || errno == ENOTDIR))
		return;
	int tree = at < 0 ? -1 : copy_tree(at, "", AT_RECURSIVE);
	if (tree < 0 || set_attr(tree, 0, MOUNT_ATTR_RDONLY, 0, 0) != 0 || attach(tree, at) != 0)
		fail("make read-only", path);
	close(tree);
	close(at);
}

static int empty_dir(const char *label)
{
	// Some distributions' kernels want two inodes.
	int tree = new_fs("tmpfs", "tmpfs", "nr_blocks=1,nr_inodes=1", label, MOUNT_ATTR_RDONLY, -1);
	return tree < 0 ? new_fs("tmpfs", "tmpfs", "nr_blocks=1,nr_inodes=2", label, MOUNT_ATTR_RDONLY, -1) : tree;
}

static int dev_null(void)
{
	struct stat st;
	int at = open_plain("/dev/null", O_PATH);
	if (at < 0 || fstat(at, &st) != 0)
		return -1;
	if (!S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, 3)) {
		errno = ENODEV; // the container's /dev/null is something else
		return -1;
	}
	int tree = copy_tree(at, "", 0);
	close(at);
	return tree;
}

// mask hides files behind /dev/null and directories behind one empty file system. What is not there needs none.
static void mask(const char *path, const char *label, int *empty, int *null)
{
	struct stat st;
	int at = open_plain(path, O_PATH);
	if (at < 0 && (errno == ENOENT || errno == ENOTDIR))
		return;
	if (at < 0 || fstat(at, &st) != 0)
		fail("mask", path);
	// The first is mounted here; the others are copies of it. (A mount that is not attached yet cannot be copied before Linux 6.15.)
	int *kept = S_ISDIR(st.st_mode) ? empty : null;
	int tree;
	if (*kept >= 0)
		tree = copy_tree(*kept, "", 0);
	else
		tree = *kept = S_ISDIR(st.st_mode) ? empty_dir(label) : dev_null();
	if (tree < 0 || attach(tree, at) != 0)
		fail("mask", path);
	if (tree != *kept)
		close(tree);
	close(at);
}

// protect makes paths read-only, and hides others.
void protect(const struct plan *p)
{
	const uint32_t *paths = words_of(p, p->readonly);
	for (uint32_t i = 0; i < p->nreadonly; i++)
		make_read_only(text_of(p, paths[i]));
	int empty = -1, null = -1;
	paths = words_of(p, p->masked);
	for (uint32_t i = 0; i < p->nmasked; i++)
		mask(text_of(p, paths[i]), text_of(p, p->filelabel), &empty, &null);
	if (empty >= 0)
		close(empty);
	if (null >= 0)
		close(null);
}
