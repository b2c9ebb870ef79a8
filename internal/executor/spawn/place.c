//go:build cgo

// The place of a container: its namespaces, its root and its mounts. It is made out of an empty mount namespace by descriptors of detached mounts, so
// that the cost does not grow with the host's mounts.
#define _GNU_SOURCE
#include "place.h"

#include "devices.h"
#include "mounts.h"
#include "paths.h"
#include "plan.h"
#include "protect.h"
#include "tell.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/mount.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif
#ifndef CLONE_NEWCGROUP
#define CLONE_NEWCGROUP 0x02000000
#endif

static int root = -1;    // of the container, O_PATH
static int pids_fd = -1; // the PID namespace that was joined

// source is what a mount is made of: a detached copy for a bind mount.
struct source {
	int tree; // -1: a new file system
	int dir;
};

static const struct mount_plan *mounts_of(const struct plan *p) { return (const struct mount_plan *)words_of(p, p->mounts); }

// open_source makes a detached copy of what is bound. That of a file is not made recursively, though it is asked for: nothing is mounted
// below it, and the kernel would look at everything that is mounted on its file system, such as all other pods' files.
static struct source open_source(const char *path, int recursive)
{
	struct source s = {-1, 1};
	struct stat st;
	int fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0)
		fail("open", "");
	if (fstat(fd, &st) != 0)
		fail("stat", "");
	s.dir = S_ISDIR(st.st_mode);
	s.tree = copy_tree(fd, "", s.dir && recursive ? AT_RECURSIVE : 0);
	if (s.tree < 0)
		fail("open_tree", "");
	close(fd);
	return s;
}

static struct source *open_sources(const struct plan *p)
{
	struct source *all = calloc(p->nmounts + 1, sizeof *all);
	if (!all)
		fail("allocate memory", "");
	const struct mount_plan *m = mounts_of(p);
	for (uint32_t i = 0; i < p->nmounts; i++, m++) {
		all[i] = (struct source){-1, 1};
		if (m->kind != MOUNT_BIND)
			continue;
		doing("mount", text_of(p, m->source), text_of(p, m->destination));
		all[i] = open_source(text_of(p, m->source), m->flags & MOUNT_REC);
	}
	doing("", "", "");
	return all;
}

static int *open_hierarchies(const struct plan *p)
{
	int *all = calloc(p->nhierarchies + 1, sizeof *all);
	if (!all)
		fail("allocate memory", "");
	const struct hierarchy *h = (const struct hierarchy *)words_of(p, p->hierarchies);
	for (uint32_t i = 0; i < p->nhierarchies; i++) {
		all[i] = copy_tree(AT_FDCWD, text_of(p, h[i].dir), AT_RECURSIVE);
		if (all[i] < 0)
			fail("cgroup: open_tree", text_of(p, h[i].dir));
	}
	return all;
}

static void join_namespaces(const struct plan *p)
{
	const struct namespace *n = (const struct namespace *)words_of(p, p->namespaces);
	for (uint32_t i = 0; i < p->nnamespaces; i++, n++) {
		if (!n->path) {
			if (unshare((int)n->kind) != 0)
				fail("make a namespace", "");
			continue;
		}
		int fd = open(text_of(p, n->path), O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			fail("open", text_of(p, n->path));
		if (setns(fd, (int)n->kind) != 0)
			fail("join the namespace", text_of(p, n->path));
		if (n->kind == CLONE_NEWPID)
			pids_fd = fd;
		else
			close(fd);
	}
}

static void loopback_up(void)
{
	struct ifreq lo = {.ifr_name = "lo"};
	lo.ifr_flags = IFF_UP | IFF_RUNNING;
	int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (sock < 0 || ioctl(sock, SIOCSIFFLAGS, &lo) != 0)
		fail("switch the loopback interface on", "");
	close(sock);
}

// The empty namespace has one directory: a root file system is mounted there before it becomes the root.
static int open_room(void)
{
	int fd = open("/root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		fail("root file system: open its place", "");
	return fd;
}

static void enter_empty(void)
{
	umask(0); // what is made gets the mode that is given
	if (setns(EMPTY_FD, CLONE_NEWNS) != 0)
		fail("enter the empty mount namespace", "");
	if (unshare(CLONE_NEWNS) != 0)
		fail("make a mount namespace", "");
}

static void set_propagation(const struct plan *p, int tree, const struct mount_plan *m)
{
	const uint32_t *all = words_of(p, m->propagation);
	for (uint32_t i = 0; i < m->npropagation; i++)
		if (set_attr(tree, all[i] & MS_REC ? AT_RECURSIVE : 0, 0, 0, all[i] & ~(uint32_t)MS_REC) != 0)
			fail("set the propagation", "");
}

// mount_point opens where a mount goes, and makes it if it is missing.
static int mount_point(const struct plan *p, const struct mount_plan *m, const struct source *s)
{
	const char *name = text_of(p, m->destination);
	int fd;
	if (!s->dir)
		fd = make_file_in(root, name, 0644);
	else if (m->flags & MOUNT_NO_LINKS) // these must be where programs look for them
		fd = open_straight_in(root, name, O_PATH | O_DIRECTORY);
	else
		fd = open_in(root, name, O_PATH);
	if (fd < 0 && errno == ENOENT && s->dir)
		fd = m->flags & MOUNT_NO_LINKS ? make_straight_in(root, name, 0755) : make_dir_in(root, name, 0755);
	if (fd < 0)
		fail("make the mount point", "");
	return fd;
}

// check_proc keeps mounts off /proc: what a container's runtime reads and writes there must be the kernel's.
static void check_proc(const struct mount_plan *m, const struct source *s, int onto)
{
	struct statfs fs;
	if (m->flags & MOUNT_PROC_FILE)
		return;
	if (m->flags & MOUNT_AT_PROC) {
		if (m->kind == MOUNT_PROC)
			return;
		if (s->tree >= 0 && fstatfs(s->tree, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC)
			return;
		refuse("/proc can only be covered by a proc file system");
	}
	if (fstatfs(onto, &fs) != 0)
		fail("fstatfs", "");
	if (m->flags & MOUNT_IN_PROC || fs.f_type == PROC_SUPER_MAGIC)
		refuse("it is within /proc");
}

static void bind_hierarchy(const struct plan *p, const struct mount_plan *m, int tree, int onto)
{
	if (set_attr(tree, 0, m->set, 0, 0) != 0)
		fail("set the mount's attributes", "");
	if (m->npropagation)
		set_propagation(p, tree, m);
	else if (set_attr(tree, AT_RECURSIVE, 0, 0, MS_PRIVATE) != 0)
		fail("set the propagation", "");
	if (attach(tree, onto) != 0)
		fail("move_mount", "");
}

// mount_cgroups shows the container its own cgroups: version 2 as they are, version 1 in a folder a hierarchy.
static void mount_cgroups(const struct plan *p, const struct mount_plan *m, const int *trees, int onto)
{
	const struct hierarchy *h = (const struct hierarchy *)words_of(p, p->hierarchies);
	if (p->nhierarchies == 1 && !h->name) {
		if (p->flags & PLAN_CGROUP_NS) {
			bind_hierarchy(p, m, trees[0], onto); // the root, as seen from the cgroup namespace that is made yet
			return;
		}
		int all = new_fs("cgroup2", text_of(p, m->source), text_of(p, m->data), "", m->set, -1);
		if (all < 0)
			fail("file system cgroup2", "");
		set_propagation(p, all, m);
		if (attach(all, onto) != 0)
			fail("move_mount", "");
		close(all);
		return;
	}
	int folder = new_fs("tmpfs", "tmpfs", "mode=755", text_of(p, m->label), MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, -1);
	if (folder < 0)
		fail("file system tmpfs", "");
	for (uint32_t i = 0; i < p->nhierarchies; i++) {
		const char *name = text_of(p, h[i].name);
		if (mkdirat(folder, name, 0755) != 0)
			fail("cgroup", name);
		const uint32_t *also = words_of(p, h[i].also);
		for (uint32_t k = 0; k < h[i].nalso; k++)
			if (symlinkat(name, folder, text_of(p, also[k])) != 0 && errno != EEXIST)
				fail("cgroup", text_of(p, also[k]));
	}
	// The folders are there: where the container may not write, there is no room in the folder of all either.
	if (set_attr(folder, 0, m->set, 0, 0) != 0)
		fail("set the mount's attributes", "");
	set_propagation(p, folder, m);
	if (attach(folder, onto) != 0)
		fail("move_mount", "");
	for (uint32_t i = 0; i < p->nhierarchies; i++) {
		const char *name = text_of(p, h[i].name);
		int dir = openat(folder, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (dir < 0)
			fail("cgroup", name);
		bind_hierarchy(p, m, trees[i], dir);
		close(dir);
	}
	close(folder);
}

// new_tree makes a new file system as a mount asks for it.
static int new_tree(const struct plan *p, const struct mount_plan *m, mode_t covered)
{
	char *mode = NULL;
	const char *data = text_of(p, m->data);
	if (m->flags & MOUNT_TMPFS) {
		// The mode of the directory that it covers, unless another is asked for.
		if (asprintf(&mode, "mode=%04o,%s", covered & 07777, data) < 0)
			fail("allocate memory", "");
		data = mode;
	}
	const char *label = m->flags & MOUNT_LABEL_ROOT ? "" : text_of(p, m->label);
	int tree = new_fs(text_of(p, m->fstype), text_of(p, m->source), data, label, m->set, -1);
	if (tree < 0)
		fail("file system", text_of(p, m->fstype));
	free(mode);
	if (m->flags & MOUNT_LABEL_ROOT && m->label) {
		label = text_of(p, m->label);
		int dir = openat(tree, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (dir < 0 || (fsetxattr(dir, "security.selinux", label, strlen(label), 0) != 0 && errno != ENOTSUP))
			fail("label", label);
		close(dir);
	}
	return tree;
}

static void make_mount(const struct plan *p, const struct mount_plan *m, struct source *s, const int *hierarchies)
{
	int onto = mount_point(p, m, s);
	struct stat at, top;
	if (fstat(onto, &at) != 0 || fstat(root, &top) != 0)
		fail("fstat", "");
	if (at.st_dev == top.st_dev && at.st_ino == top.st_ino)
		refuse("it is the root of the container");
	check_proc(m, s, onto);
	if (m->kind == MOUNT_CGROUP) {
		mount_cgroups(p, m, hierarchies, onto);
		close(onto);
		return;
	}
	int tree = s->tree;
	if (m->kind == MOUNT_BIND) {
		if (set_attr(tree, 0, m->set, m->clear, 0) != 0)
			fail("mount_setattr", "");
		if (m->flags & MOUNT_RECATTR && set_attr(tree, AT_RECURSIVE, m->recset, m->recclear, m->recpropagation) != 0)
			fail("mount_setattr", "");
	} else if (m->kind == MOUNT_NEW) {
		tree = new_tree(p, m, at.st_mode);
	}
	if (m->kind != MOUNT_PROC) { // which shows the PID namespace of the process that mounts it: complete_mounts does
		set_propagation(p, tree, m);
		if (attach(tree, onto) != 0)
			fail("move_mount", "");
		if (m->flags & MOUNT_READONLY_LATE)
			s->tree = tree; // which is filled yet: finish needs it
		else
			close(tree);
	}
	close(onto);
}

// pivot makes the root of the container the root of the namespace, and gives the old one up.
static void pivot(void)
{
	// With both the same the old root comes to lie on the new one, and no directory is needed to put it in.
	if (fchdir(root) != 0 || syscall(SYS_pivot_root, ".", ".") != 0 || umount2(".", MNT_DETACH) != 0 || chdir("/") != 0)
		fail("pivot_root", "");
}

// finish is what is done from inside: nothing of the host is in reach any more.
static void finish(const struct plan *p, const struct source *sources)
{
	if (p->rootshared) {
		int top = open_plain("/", O_PATH | O_DIRECTORY);
		if (top < 0 || set_attr(top, p->rootshared & MS_REC ? AT_RECURSIVE : 0, 0, 0, MS_SHARED) != 0)
			fail("propagation of the root", "");
		close(top);
	}
	const struct mount_plan *m = mounts_of(p);
	for (uint32_t i = 0; i < p->nmounts; i++, m++) {
		if (!(m->flags & MOUNT_READONLY_LATE))
			continue;
		if (set_attr(sources[i].tree, 0, MOUNT_ATTR_RDONLY, 0, 0) != 0)
			fail("make read-only", text_of(p, m->destination));
		close(sources[i].tree);
	}
}

void make_place(const struct plan *p)
{
	struct source *sources = open_sources(p);
	int *devices = open_devices(p), *hierarchies = open_hierarchies(p);
	int rootfs = copy_tree(AT_FDCWD, text_of(p, p->rootfs), AT_RECURSIVE);
	if (rootfs < 0 || set_attr(rootfs, AT_RECURSIVE, 0, 0, p->rootpropagation) != 0)
		fail("root file system", text_of(p, p->rootfs));
	join_namespaces(p);
	if (p->flags & PLAN_LOOPBACK)
		loopback_up();
	enter_empty();
	int room = open_room();
	if (attach(rootfs, room) != 0)
		fail("root file system: move_mount", "");
	close(room);
	close(rootfs);
	root = open_room();
	const struct mount_plan *m = mounts_of(p);
	for (uint32_t i = 0; i < p->nmounts; i++, m++) {
		doing("mount", text_of(p, m->source), text_of(p, m->destination));
		make_mount(p, m, &sources[i], hierarchies);
	}
	doing("", "", "");
	if (p->flags & PLAN_DEV)
		fill_dev(p, root, devices);
	pivot();
	finish(p, sources);
	close(root);
	for (uint32_t i = 0; i < p->nhierarchies; i++)
		close(hierarchies[i]);
	if (p->flags & PLAN_CGROUP_NS && unshare(CLONE_NEWCGROUP) != 0)
		fail("make a cgroup namespace", "");
}

void join_place(void)
{
	const int all = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWPID;
	// The cgroup namespace not before the birth: from within one nobody comes into a cgroup who is outside of it (the mount option nsdelegate, which
	// systemd sets).
	if (setns(TARGET_FD, all) != 0 || setns(TARGET_FD, CLONE_NEWCGROUP) != 0)
		fail("join the container's namespaces", "");
	umask(0);
}

// mount_proc says with 0 that it is too early.
static int mount_proc(const struct plan *p, const struct mount_plan *m, int early)
{
	// The directory has been made. A link there would lead programs to another place than /proc.
	int onto = open_straight_in(AT_FDCWD, "/proc", O_PATH);
	struct stat st;
	if (onto < 0 || fstat(onto, &st) != 0)
		fail("mount point", "/proc");
	if (!S_ISDIR(st.st_mode)) {
		errno = ENOTDIR;
		fail("mount point", "/proc");
	}
	// Early it is that of the namespace which others are in, where the kernel can do that (from 6.18 on).
	int tree = new_fs("proc", "proc", text_of(p, m->data), "", m->set, early ? pids_fd : -1);
	if (tree < 0 && early) {
		close(onto);
		return 0;
	}
	if (tree < 0 || attach(tree, onto) != 0)
		fail("mount", "/proc");
	close(tree);
	close(onto);
	return 1;
}

int complete_mounts(const struct plan *p, int early)
{
	const struct mount_plan *m = mounts_of(p);
	for (uint32_t i = 0; i < p->nmounts; i++, m++)
		if (m->kind == MOUNT_PROC && !mount_proc(p, m, early))
			return 0;
	if (p->flags & PLAN_READONLY_ROOT) {
		int top = open_plain("/", O_PATH | O_DIRECTORY);
		if (top < 0 || set_attr(top, 0, MOUNT_ATTR_RDONLY, 0, 0) != 0)
			fail("make read-only", "/");
		close(top);
	}
	protect(p);
	return 1;
}
