//go:build cgo

// The device nodes of a container, and what else is in its /dev.
#define _GNU_SOURCE
#include "devices.h"

#include "mounts.h"
#include "paths.h"
#include "plan.h"
#include "tell.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif

// open_devices takes hold of the host's own device nodes, where it forbids to make others.
int *open_devices(const struct plan *p)
{
	if (!(p->flags & PLAN_BIND_DEVICES))
		return NULL;
	int *all = calloc(p->ndevices + 1, sizeof *all);
	if (!all)
		fail("allocate memory", "");
	const struct device *d = (const struct device *)words_of(p, p->devices);
	for (uint32_t i = 0; i < p->ndevices; i++, d++) {
		all[i] = copy_tree(AT_FDCWD, text_of(p, d->path), 0);
		if (all[i] < 0)
			fail("this host forbids to make device nodes, and has none at", text_of(p, d->path));
	}
	return all;
}

// make_node makes a device node, and says with 0 that something is there already. A link there leads to where the node is made.
static int make_node(int root, const struct device *d, const char *path, int *dir, char **name)
{
	if (mknodat(*dir, *name, d->mode, d->number) == 0)
		return 1;
	if (errno != EEXIST)
		fail("mknodat", "");
	struct stat st;
	if (fstatat(*dir, *name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISLNK(st.st_mode))
		return 0;
	close(*dir);
	free(*name);
	*dir = make_parent_in(root, path, name);
	if (*dir < 0)
		fail("make its directory", "");
	if (mknodat(*dir, *name, d->mode, d->number) == 0)
		return 1;
	if (errno != EEXIST)
		fail("mknodat", "");
	return 0;
}

static void make_device(int root, const struct device *d, const char *folder, const char *node, const char *path, int host)
{
	if (host >= 0) {
		int file = make_file_in(root, path, 0644);
		if (file < 0 || attach(host, file) != 0)
			fail("show the host's", "");
		close(file);
		close(host);
		return;
	}
	int dir = make_dir_in(root, folder, 0755);
	if (dir < 0)
		fail("make its directory", "");
	char *name = strdup(node);
	if (!name)
		fail("allocate memory", "");
	if (!make_node(root, d, path, &dir, &name)) {
		free(name);
		close(dir);
		return;
	}
	// What was made is looked at before it is changed: the directory may be a volume, in which others are at work.
	struct stat st;
	int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0)
		fail("look at it", "");
	if ((st.st_mode & S_IFMT) != (d->mode & S_IFMT) || (!S_ISFIFO(st.st_mode) && st.st_rdev != d->number))
		refuse("it was replaced while it was made");
	if (fchownat(fd, "", d->uid, d->gid, AT_EMPTY_PATH) != 0)
		fail("fchownat", "");
	free(name);
	close(fd);
	close(dir);
}

// fill_dev makes the device nodes and links in /dev.
void fill_dev(const struct plan *p, int root, const int *host)
{
	const struct device *d = (const struct device *)words_of(p, p->devices);
	for (uint32_t i = 0; i < p->ndevices; i++, d++) {
		char path[4200];
		snprintf(path, sizeof path, "/%s%s%s", text_of(p, d->folder), d->folder ? "/" : "", text_of(p, d->name));
		doing("device", path, "");
		make_device(root, d, text_of(p, d->folder), text_of(p, d->name), path + 1, host ? host[i] : -1);
	}
	doing("/dev", "", "");
	int dev = make_dir_in(root, "dev", 0755);
	if (dev < 0)
		fail("make", "");
	if (unlinkat(dev, "ptmx", 0) != 0 && errno != ENOENT)
		fail("remove", "ptmx");
	const struct link *l = (const struct link *)words_of(p, p->links);
	for (uint32_t i = 0; i < p->nlinks; i++, l++)
		if (symlinkat(text_of(p, l->target), dev, text_of(p, l->name)) != 0 && errno != EEXIST)
			fail("link", text_of(p, l->name));
	close(dev);
	doing("", "", "");
}
