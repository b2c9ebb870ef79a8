//go:build cgo

// The mounts that the stub makes: a proc file system shows the PID namespace of the process that mounts it, so the worker's thread cannot;
// and what is hidden or made read-only lies in it.
#define _GNU_SOURCE
#include "stub.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif
#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

static int new_fs(const char *kind, char *options, const char *label, uint32_t attrs)
{
	int fs = (int)syscall(SYS_fsopen, kind, FSOPEN_CLOEXEC);
	if (fs < 0)
		return -1;
	if (syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "source", kind, 0) != 0)
		return -1;
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
	if (label && syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "context", label, 0) != 0)
		return -1;
	// The file system too, not only this mount of it.
	if (attrs & MOUNT_ATTR_RDONLY && syscall(SYS_fsconfig, fs, FSCONFIG_SET_FLAG, "ro", NULL, 0) != 0)
		return -1;
	if (syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) != 0)
		return -1;
	int tree = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, attrs);
	close(fs);
	return tree;
}

static int copy_tree(int dir, const char *path, unsigned flags)
{
	return (int)syscall(SYS_open_tree, dir, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | flags);
}

static int cover(int tree, const char *path)
{
	int onto = open(path, O_PATH | O_CLOEXEC);
	if (onto < 0)
		return -1;
	int r = (int)syscall(SYS_move_mount, tree, "", onto, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
	close(onto);
	return r;
}

static int read_only(int tree)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};
	return (int)syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof attr);
}

static void mount_proc(const struct plan *p, char *base)
{
	// The worker has made the directory. A link there would lead programs to another place than /proc.
	struct stat st;
	if (lstat("/proc", &st) != 0)
		fail("mount point", "/proc");
	if (!S_ISDIR(st.st_mode)) {
		errno = ENOTDIR;
		fail("mount point", "/proc");
	}
	int tree = new_fs("proc", base + p->proc, NULL, p->procattrs);
	if (tree < 0 || cover(tree, "/proc") != 0)
		fail("mount", "/proc");
	close(tree);
}

// make_read_only covers a path with itself, read-only. One that is not there is none to protect.
static void make_read_only(const char *path)
{
	int tree = copy_tree(AT_FDCWD, path, AT_RECURSIVE);
	if (tree < 0 && errno == ENOENT)
		return;
	if (tree < 0 || read_only(tree) != 0 || cover(tree, path) != 0)
		fail("make read-only", path);
	close(tree);
}

static int empty_dir(const char *label)
{
	// Some distributions' kernels want two inodes.
	char one[] = "nr_blocks=1,nr_inodes=1", two[] = "nr_blocks=1,nr_inodes=2";
	int tree = new_fs("tmpfs", one, label, MOUNT_ATTR_RDONLY);
	return tree < 0 ? new_fs("tmpfs", two, label, MOUNT_ATTR_RDONLY) : tree;
}

static int dev_null(void)
{
	int tree = copy_tree(AT_FDCWD, "/dev/null", 0);
	struct stat st;
	if (tree < 0 || fstat(tree, &st) != 0)
		return -1;
	if (!S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, 3)) {
		errno = ENODEV; // the container's /dev/null is something else
		return -1;
	}
	return tree;
}

// mask hides files behind /dev/null and directories behind one empty file system. What is not there needs none.
static void mask(const char *path, const char *label, int *empty, int *null)
{
	struct stat st;
	if (stat(path, &st) != 0) {
		if (errno == ENOENT || errno == ENOTDIR)
			return;
		fail("mask", path);
	}
	// The first is mounted here; the others are copies of it. (A mount that is not attached yet cannot be copied before Linux 6.15.)
	int *kept = S_ISDIR(st.st_mode) ? empty : null;
	int tree;
	if (*kept >= 0)
		tree = copy_tree(*kept, "", AT_EMPTY_PATH);
	else
		tree = *kept = S_ISDIR(st.st_mode) ? empty_dir(label) : dev_null();
	if (tree < 0 || cover(tree, path) != 0)
		fail("mask", path);
	if (tree != *kept)
		close(tree);
}

void complete_mounts(const struct plan *p, char *base)
{
	if (p->flags & PLAN_PROC)
		mount_proc(p, base);
	if (p->flags & PLAN_READONLY_ROOT) {
		int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (root < 0 || read_only(root) != 0)
			fail("make read-only", "/");
		close(root);
	}
	const uint32_t *paths = (const uint32_t *)(base + p->readonly);
	for (uint32_t i = 0; i < p->nreadonly; i++)
		make_read_only(base + paths[i]);
	int empty = -1, null = -1;
	paths = (const uint32_t *)(base + p->masked);
	for (uint32_t i = 0; i < p->nmasked; i++)
		mask(base + paths[i], p->filelabel ? base + p->filelabel : NULL, &empty, &null);
	if (empty >= 0)
		close(empty);
	if (null >= 0)
		close(null);
}
