//go:build cgo

// Paths of a container: links, and "..", never lead out of its root, and magic links (those of /proc) are not followed at all. Names are relative
// and clean, as plan.go makes them; an empty one is ".".
//
// What is missing is made where the links of its name lead, though nothing may be there yet (an image's /etc/resolv.conf is often a link into a
// /run that is empty). Others may be at work in the same directories, where they are volumes: where a name leads is found out first, and
// then made without following any link, so that what they change in between makes an error, and another try, but nothing outside of the root.
#define _GNU_SOURCE
#include "paths.h"

#include "plan.h"
#include "tell.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
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

// A name is resolved at most so often anew, because somebody puts links in its way meanwhile, and follows at most so many links, as in the kernel.
enum { TRIES_MOST = 16, LINKS_MOST = 40, NAME_MOST = 2 * 4096 };

// read_link reads what a link says, up to NAME_MOST. Those of /proc say what they do not mean.
static char *read_link(int link)
{
	struct statfs fs;
	if (fstatfs(link, &fs) != 0)
		return NULL;
	if (fs.f_type == PROC_SUPER_MAGIC) {
		errno = ELOOP;
		return NULL;
	}
	char *to = malloc(NAME_MOST);
	if (!to)
		fail("allocate memory", "");
	ssize_t n = readlinkat(link, "", to, NAME_MOST - 1);
	if (n < 0) {
		int error = errno;
		free(to);
		errno = error;
		return NULL;
	}
	to[n] = 0;
	return to;
}

// link_at returns what the link of a name says, whose parents are none; NULL with errno 0: it is no link, or not there.
static char *link_at(int root, const char *name)
{
	struct stat st;
	int fd = open_how(root, name, O_PATH | O_NOFOLLOW, RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS);
	if (fd < 0) {
		if (errno == ENOENT || errno == ENOTDIR) // who makes it finds out
			errno = 0;
		return NULL;
	}
	char *to = NULL;
	int error = 0;
	if (fstat(fd, &st) != 0 || (S_ISLNK(st.st_mode) && !(to = read_link(fd))))
		error = errno;
	close(fd);
	errno = error;
	return to;
}

// resolve returns the name without links and ".." that a name stands for, as if all that is missing were directories: so a link may lead to what
// is made yet. It is only words, and holds for the moment: what is done with it must follow no link. The caller frees it; NULL: see errno.
static char *resolve(int root, const char *name)
{
	char *done = malloc(NAME_MOST), *rest = malloc(NAME_MOST);
	int links = 0;
	size_t have = 0;
	if (!done || !rest)
		fail("allocate memory", "");
	done[0] = 0;
	if (snprintf(rest, NAME_MOST, "%s", name) >= NAME_MOST) {
		errno = ENAMETOOLONG;
		goto failed;
	}
	for (char *next = rest; *next;) {
		size_t n = strcspn(next, "/");
		char *after = next[n] ? next + n + 1 : next + n;
		size_t before = have;
		if (n == 0 || (n == 1 && next[0] == '.')) {
			next = after;
			continue;
		}
		if (n == 2 && next[0] == '.' && next[1] == '.') {
			char *slash = strrchr(done, '/');
			have = slash ? (size_t)(slash - done) : 0;
			done[have] = 0;
			next = after;
			continue;
		}
		if (have + n + 2 > NAME_MOST) {
			errno = ENAMETOOLONG;
			goto failed;
		}
		have += (size_t)sprintf(done + have, "%s%.*s", have ? "/" : "", (int)n, next);
		char *to = link_at(root, done);
		if (!to && errno)
			goto failed;
		next = after;
		if (!to)
			continue;
		char *all = NULL;
		if (asprintf(&all, "%s/%s", to, next) < 0)
			fail("allocate memory", "");
		have = *to == '/' ? 0 : before;
		done[have] = 0;
		free(to);
		free(rest);
		next = rest = all;
		if (++links > LINKS_MOST || strlen(all) >= NAME_MOST) {
			errno = links > LINKS_MOST ? ELOOP : ENAMETOOLONG;
			goto failed;
		}
	}
	free(rest);
	return done;
failed:;
	int error = errno;
	free(done);
	free(rest);
	errno = error;
	return NULL;
}

// make_straight makes a directory and its parents, of which none may be a link.
static int make_straight(int root, const char *name, unsigned mode)
{
	int dir = open_straight_in(root, "", O_PATH | O_DIRECTORY);
	while (dir >= 0 && *name) {
		char part[256];
		size_t n = strcspn(name, "/");
		if (n >= sizeof part) {
			close(dir);
			errno = ENAMETOOLONG;
			return -1;
		}
		memcpy(part, name, n);
		part[n] = 0;
		name += name[n] ? n + 1 : n;
		int next = -1;
		if (mkdirat(dir, part, mode) == 0 || errno == EEXIST)
			next = open_how(dir, part, O_PATH | O_DIRECTORY | O_NOFOLLOW, RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH);
		int error = errno;
		close(dir);
		errno = error;
		dir = next;
	}
	return dir;
}

// again says that what was resolved did not hold: there is a link where there was none.
static int again(int error, int tries) { return (error == ELOOP || error == ENOTDIR || error == EEXIST) && tries + 1 < TRIES_MOST; }

int make_straight_in(int root, const char *name, unsigned mode)
{
	int fd = open_straight_in(root, name, O_PATH | O_DIRECTORY);
	return fd >= 0 || errno != ENOENT ? fd : make_straight(root, name, mode);
}

int make_dir_in(int root, const char *name, unsigned mode)
{
	for (int tries = 0;; tries++) {
		int fd = open_in(root, name, O_PATH | O_DIRECTORY);
		if (fd >= 0 || errno != ENOENT)
			return fd;
		char *straight = resolve(root, name);
		if (!straight)
			return -1;
		fd = make_straight(root, straight, mode);
		int error = errno;
		free(straight);
		errno = error;
		if (fd >= 0 || !again(error, tries))
			return fd;
	}
}

int make_parent_in(int root, const char *name, char **last)
{
	for (int tries = 0;; tries++) {
		char *straight = resolve(root, name);
		if (!straight)
			return -1;
		char *slash = strrchr(straight, '/');
		*last = strdup(slash ? slash + 1 : straight);
		if (!*last)
			fail("allocate memory", "");
		if (slash)
			*slash = 0;
		else
			straight[0] = 0;
		int fd = -1;
		if (**last)
			fd = make_straight(root, straight, 0755);
		else
			errno = EISDIR; // it is the root
		int error = errno;
		free(straight);
		if (fd >= 0)
			return fd;
		free(*last);
		errno = error;
		if (!again(error, tries))
			return -1;
	}
}

int make_file_in(int root, const char *name, unsigned mode)
{
	for (int tries = 0;; tries++) {
		int fd = open_in(root, name, O_PATH);
		if (fd >= 0 || errno != ENOENT)
			return fd;
		char *last;
		int dir = make_parent_in(root, name, &last);
		if (dir < 0)
			return -1;
		fd = openat(dir, last, O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_WRONLY, mode);
		int error = errno;
		free(last);
		close(dir);
		errno = error;
		if (fd >= 0 || !again(error, tries))
			return fd;
	}
}

int open_again(int path_fd, int flags)
{
	char link[64];
	snprintf(link, sizeof link, "self/fd/%d", path_fd);
	return openat(PROC_FD, link, flags | O_CLOEXEC);
}
