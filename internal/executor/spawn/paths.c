//go:build cgo

// Paths of a container: links, and "..", never lead out of its root, and magic links (those of /proc) are not followed at all. Names are relative
// and clean, as plan.go makes them; an empty one is ".".
#define _GNU_SOURCE
#include "start.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int open_how(int dir, const char *name, int flags, uint64_t resolve)
{
	struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC), .resolve = resolve};
	long fd;
	int tries = 0;
	do // EAGAIN: something was renamed meanwhile, and the kernel cannot be sure that ".." stayed inside
		fd = syscall(SYS_openat2, dir, *name ? name : ".", &how, sizeof how);
	while (fd < 0 && (errno == EAGAIN || errno == EINTR) && tries++ < 64);
	return (int)fd;
}

int open_in(int root, const char *name, int flags)
{
	return open_how(root, name, flags, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
}

int open_straight_in(int root, const char *name, int flags)
{
	return open_how(root, name, flags, RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS);
}

int open_plain(const char *name, int flags)
{
	return open_how(AT_FDCWD, name, flags, RESOLVE_NO_MAGICLINKS);
}

// split cuts a name in two: what is before its last part, which may be empty, and that part. The former is the caller's to free.
static char *split(const char *name, const char **last)
{
	const char *slash = strrchr(name, '/');
	*last = slash ? slash + 1 : name;
	char *parent = strndup(name, slash ? (size_t)(slash - name) : 0);
	if (!parent)
		fail("allocate memory", "");
	return parent;
}

int make_dir_in(int root, const char *name, unsigned mode)
{
	int fd = open_in(root, name, O_PATH | O_DIRECTORY);
	if (fd >= 0 || errno != ENOENT || !*name)
		return fd;
	const char *last;
	char *parent = split(name, &last);
	int dir = make_dir_in(root, parent, mode);
	free(parent);
	if (dir < 0)
		return -1;
	// A dangling link of that name: what it points to is not made.
	if (mkdirat(dir, last, mode) == 0 || errno == EEXIST)
		fd = open_how(dir, last, O_PATH | O_DIRECTORY | O_NOFOLLOW, RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH);
	int error = errno;
	close(dir);
	errno = error;
	return fd;
}

int make_file_in(int root, const char *name, unsigned mode)
{
	int fd = open_in(root, name, O_PATH);
	if (fd >= 0 || errno != ENOENT)
		return fd;
	const char *last;
	char *parent = split(name, &last);
	int dir = make_dir_in(root, parent, 0755);
	free(parent);
	if (dir < 0)
		return -1;
	int made = openat(dir, last, O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_WRONLY, mode);
	if (made >= 0) {
		close(made);
		fd = openat(dir, last, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	}
	int error = errno;
	close(dir);
	errno = error;
	return fd;
}

int open_again(int path_fd, int flags)
{
	char link[64];
	snprintf(link, sizeof link, "self/fd/%d", path_fd);
	return openat(PROC_FD, link, flags | O_CLOEXEC);
}
