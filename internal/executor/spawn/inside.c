//go:build cgo

// What is looked up inside of the container: it may have put anything anywhere. A file is looked at before it is opened for what it is (a
// descriptor of O_PATH opens nothing), under the container's own device rules.
#define _GNU_SOURCE
#include "inside.h"

#include "mounts.h"
#include "paths.h"
#include "plan.h"
#include "tell.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif
#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif

static int is_device(int fd, unsigned major, unsigned minor)
{
	struct stat st;
	return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(major, minor);
}

// open_null opens the container's /dev/null if it is one, and else the host's, by a mount that lets nobody change it.
static int open_null(void)
{
	int fd = -1, path = open_plain("/dev/null", O_PATH | O_NOFOLLOW);
	if (path >= 0) {
		if (is_device(path, 1, 3))
			fd = open_again(path, O_RDWR);
		close(path);
	}
	return fd >= 0 ? fd : open_again(NULL_FD, O_RDWR);
}

// open_terminal makes a terminal of the container's own devpts, and takes its other end without a path.
static void open_terminal(const struct plan *p)
{
	struct statfs fs;
	int path = open_plain("/dev/pts/ptmx", O_PATH | O_NOFOLLOW);
	if (path < 0)
		fail("terminal: open", "/dev/pts/ptmx");
	if (fstatfs(path, &fs) != 0)
		fail("terminal: look at", "/dev/pts/ptmx");
	if (fs.f_type != DEVPTS_SUPER_MAGIC || !is_device(path, 5, 2))
		refuse("terminal: /dev/pts/ptmx of the container is not that of a devpts");
	int master = open_again(path, O_RDWR | O_NOCTTY | O_NONBLOCK), unlocked = 0;
	if (master < 0)
		fail("terminal: open", "/dev/pts/ptmx");
	close(path);
	if (ioctl(master, TIOCSPTLCK, &unlocked) != 0)
		fail("terminal: unlock", "");
	int slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		fail("terminal: open its other end", "");
	struct winsize size = {.ws_col = (unsigned short)p->width, .ws_row = (unsigned short)p->height};
	if (p->width && p->height && ioctl(master, TIOCSWINSZ, &size) != 0)
		fail("terminal: set its size", "");
	char terminal = STATUS_TERMINAL;
	tell(&terminal, 1, master);
	close(master);
	for (int i = 0; i < 3; i++)
		if (dup2(slave, i) < 0)
			fail("terminal", "");
	close(slave);
}

void open_streams(const struct plan *p)
{
	if (p->flags & PLAN_TERMINAL)
		open_terminal(p);
	int null = -1;
	for (int i = 0; i < 3; i++) {
		struct stat st;
		if (fcntl(i, F_GETFL) & O_PATH) { // none was given
			if (null < 0 && (null = open_null()) < 0)
				fail("open", "/dev/null");
			if (dup2(null, i) < 0)
				fail("open", "/dev/null");
			continue;
		}
		fcntl(i, F_SETFD, 0);
		// The streams are given to the user that the process becomes, so that it can open them again by /dev/stdout. Where that cannot be (a
		// read-only file system) it goes without.
		if (fstat(i, &st) == 0 && st.st_uid != p->uid && !(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3)) && fchown(i, p->uid, (gid_t)-1) != 0)
			errno = 0;
	}
	if (null >= 0)
		close(null);
}

// mount_console shows the terminal as /dev/console.
void mount_console(void)
{
	doing("/dev/console", "", "");
	int tree = copy_tree(0, "", 0);
	if (tree < 0)
		fail("copy the terminal", "");
	int dev = open_plain("/dev", O_PATH | O_DIRECTORY);
	if (dev < 0)
		fail("", "");
	int file = openat(dev, "console", O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (file < 0 && errno == ENOENT)
		file = make_file_in(dev, "console", 0600);
	if (file < 0)
		fail("", "");
	struct stat st;
	if (fstat(file, &st) != 0 || S_ISLNK(st.st_mode) || S_ISDIR(st.st_mode))
		refuse("a link or a directory is in its place");
	if (attach(tree, file) != 0)
		fail("mount", "");
	close(file);
	close(dev);
	close(tree);
	doing("", "", "");
}

void make_cwd(const struct plan *p)
{
	const char *cwd = text_of(p, p->cwd);
	while (*cwd == '/')
		cwd++;
	int root = open_plain("/", O_PATH | O_DIRECTORY);
	int dir = root < 0 ? -1 : make_dir_in(root, cwd, 0755);
	if (dir < 0)
		fail("working directory: make", text_of(p, p->cwd));
	close(dir);
	close(root);
}

// executable says with 0 that this process may execute a file, and else why not.
static int executable(const char *name)
{
	struct stat st;
	int fd = open_plain(name, O_PATH);
	if (fd < 0)
		return errno;
	int error = 0;
	if (fstat(fd, &st) != 0)
		error = errno;
	else if (S_ISDIR(st.st_mode))
		error = EISDIR;
	else if (!S_ISREG(st.st_mode) || !(st.st_mode & 0111))
		error = EACCES;
	else if (syscall(SYS_faccessat2, fd, "", X_OK, AT_EACCESS | AT_EMPTY_PATH) != 0)
		error = errno;
	close(fd);
	return error;
}

// find_program finds the program as a shell of this process's user would: a folder that it cannot enter is passed over, and so is what it may
// not execute.
const char *find_program(const struct plan *p)
{
	const char *name = text_of(p, p->program);
	char quoted[4224];
	snprintf(quoted, sizeof quoted, "\"%s\"", name);
	if (strchr(name, '/')) {
		// A relative path counts from the working directory, to which this process changes yet.
		if (*name == '/' && (errno = executable(name)) != 0) {
			doing("exec:", quoted, "");
			fail("", "");
		}
		return name;
	}
	for (const char *dir = text_of(p, p->search), *end; *dir; dir = *end ? end + 1 : end) {
		end = strchrnul(dir, ':');
		if (*dir != '/')
			continue; // a program of the working directory is not what anybody means who gives no path
		char *full;
		if (asprintf(&full, "%.*s/%s", (int)(end - dir), dir, name) < 0)
			fail("allocate memory", "");
		if (executable(full) == 0)
			return full;
		free(full);
	}
	doing("exec:", quoted, "");
	refuse("executable file not found in $PATH");
}

// A passwd file is read no further than this many bytes, and a line longer than the buffer counts as none.
enum { PASSWD_MOST = 16 << 20, PASSWD_LINE = 16 << 10 };

// home_in returns the home directory in a line of a passwd file (name:password:uid:gid:comment:home:shell) if it is that user's.
static char *home_in(char *line, uint32_t uid)
{
	char *field[6];
	for (int i = 0; i < 6; i++) {
		field[i] = line;
		line = strchr(line, ':');
		if (!line && i < 5)
			return NULL;
		if (line)
			*line++ = 0;
	}
	char *end;
	errno = 0;
	unsigned long n = strtoul(field[2], &end, 10);
	if (errno || *end || end == field[2] || *field[2] == '-' || n != uid)
		return NULL;
	return field[5];
}

static char *read_home(int fd, uint32_t uid)
{
	char *buf = malloc(PASSWD_LINE + 1);
	size_t have = 0;
	int skip = 0; // the rest of a line that is too long
	if (!buf)
		return NULL;
	for (size_t all = 0; all < PASSWD_MOST;) {
		ssize_t n = read(fd, buf + have, PASSWD_LINE - have);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			buf[have] = 0;
			return have && !skip ? home_in(buf, uid) : NULL;
		}
		all += (size_t)n;
		have += (size_t)n;
		char *line = buf, *end;
		while ((end = memchr(line, '\n', have - (size_t)(line - buf)))) {
			*end = 0;
			char *home = skip ? NULL : home_in(line, uid);
			if (home)
				return home;
			skip = 0;
			line = end + 1;
		}
		have -= (size_t)(line - buf);
		memmove(buf, line, have);
		if (have == PASSWD_LINE) {
			have = 0;
			skip = 1;
		}
	}
	return NULL;
}

// find_home looks the home directory of a user up; the root where it is not known.
const char *find_home(uint32_t uid)
{
	struct stat st;
	char *home = NULL;
	int path = open_plain("/etc/passwd", O_PATH);
	if (path < 0)
		return "/";
	if (fstat(path, &st) == 0 && S_ISREG(st.st_mode)) {
		int fd = open_again(path, O_RDONLY | O_NOCTTY | O_NONBLOCK);
		if (fd >= 0) {
			home = read_home(fd, uid);
			close(fd);
		}
	}
	close(path);
	return home && *home ? home : "/";
}
