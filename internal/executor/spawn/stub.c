//go:build cgo

// The stub is the last stage of a process's start: this binary, executed anew in the place where the process is to run (its
// namespaces, its root), with nothing of the worker's memory. It takes over before Go's runtime starts, so that it
// costs a few hundred microseconds and has one thread, becomes the user, and executes the program.
#define _GNU_SOURCE
#include "stub.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/keyctl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef CLONE_NEWCGROUP
#define CLONE_NEWCGROUP 0x02000000
#endif
#ifndef PR_CAP_AMBIENT
#define PR_CAP_AMBIENT 47
#define PR_CAP_AMBIENT_RAISE 2
#define PR_CAP_AMBIENT_CLEAR_ALL 4
#endif

struct rlimit monopod_nofile;

static char fault = STATUS_BROKEN;
static int told; // what goes wrong from here on is written to stderr, too

// fail tells why the program cannot be executed: the worker, and whoever reads the container's output.
void fail(const char *what, const char *arg)
{
	char text[4352], why[128];
	snprintf(why, sizeof why, "%s", strerror(errno));
	if (why[0] >= 'A' && why[0] <= 'Z' && why[1] >= 'a') // as everything else that reports errors here
		why[0] += 'a' - 'A';
	int n = snprintf(text + 1, sizeof text - 2, "%s%s%s: %s", what, *arg ? " " : "", arg, why);
	if (n < 0)
		n = 0;
	if (n > (int)sizeof text - 3)
		n = (int)sizeof text - 3;
	text[0] = fault;
	send(STATUS_FD, text, (size_t)n + 1, MSG_NOSIGNAL);
	if (told) {
		text[n + 1] = '\n';
		signal(SIGPIPE, SIG_IGN);
		if (write(2, text + 1, (size_t)n + 1) < 0) {
			// Nobody reads it: the worker has been told.
		}
	}
	_exit(255);
}

static void join_cgroups(uint32_t n)
{
	// A thread that moves itself does not wait for the kernel's lock of all thread groups, as the mover of another does.
	for (uint32_t i = 0; i < n; i++) {
		if (write(CGROUP_FD + (int)i, "0", 1) != 1)
			fail("join the container's cgroup", "");
		close(CGROUP_FD + (int)i);
	}
}

static void join_keyring(const struct plan *p, const char *name)
{
	long id = syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, name);
	if (id < 0) {
		if (errno == ENOSYS)
			return;
		fail("join the session keyring", name);
	}
	if (p->keynew == 0)
		return;
	char text[256];
	long n = syscall(SYS_keyctl, KEYCTL_DESCRIBE, id, text, sizeof text - 1);
	if (n < 0)
		fail("describe the session keyring", name);
	text[n < (long)sizeof text ? n : (long)sizeof text - 1] = 0;
	// type;uid;gid;permissions;name
	char *s = text;
	for (int i = 0; i < 3 && s; i++) {
		s = strchr(s, ';');
		if (s)
			s++;
	}
	if (!s)
		return;
	uint32_t perm = (uint32_t)strtoul(s, NULL, 16);
	if (syscall(SYS_keyctl, KEYCTL_SETPERM, id, (perm & p->keykeep) | p->keynew) < 0)
		fail("set the permissions of the session keyring", name);
}

// label_next sets the SELinux label of what the kernel makes next: a keyring ("keycreate"), or the program that is executed ("exec"). The
// container may have put anything at its /proc: proc is the host's, in which this thread finds itself, too.
static void label_next(int proc, const char *what, const char *label)
{
	char path[64];
	snprintf(path, sizeof path, "thread-self/attr/%s", what);
	int fd = openat(proc, path, O_WRONLY | O_CLOEXEC);
	size_t n = strlen(label);
	if (fd < 0 || write(fd, label, n) != (ssize_t)n)
		fail("set the SELinux label", label);
	close(fd);
}

// confine_next has the program that is executed confined by AppArmor, as words say. Before Linux 5.8 there was no folder of its own, since one
// module alone had such files.
static void confine_next(int proc, const char *words)
{
	int fd = openat(proc, "thread-self/attr/apparmor/exec", O_WRONLY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		fd = openat(proc, "thread-self/attr/exec", O_WRONLY | O_CLOEXEC);
	size_t n = strlen(words);
	if (fd < 0 || write(fd, words, n) != (ssize_t)n)
		fail("set the AppArmor profile", words);
	close(fd);
}

static void load_filter(struct plan *p, char *base)
{
	struct sock_fprog prog = {.len = (unsigned short)p->nfilter, .filter = (struct sock_filter *)(base + p->filter)};
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, p->filterflags, &prog) != 0)
		fail("load the seccomp filter", "");
}

static int try_chdir(const char *cwd)
{
	if (chdir(cwd) == 0)
		return 1;
	if (errno != EACCES && errno != EPERM)
		fail("change to the working directory", cwd);
	return 0;
}

static void check_cwd(void)
{
	// The kernel says "(unreachable)" of a directory outside of the root.
	char dir[4096];
	if (syscall(SYS_getcwd, dir, sizeof dir) < 0)
		fail("read the working directory", "");
	if (dir[0] != '/') {
		errno = EPERM;
		fail("the working directory is outside of the container:", dir);
	}
}

static void set_limits(const struct plan *p, const char *base)
{
	const struct limit *all = (const struct limit *)(base + p->limits);
	for (uint32_t i = 0; i < p->nlimits; i++) {
		struct rlimit64 l = {.rlim_cur = all[i].soft, .rlim_max = all[i].hard};
		if (syscall(SYS_prlimit64, 0, (int)all[i].resource, &l, NULL) != 0)
			fail("set a resource limit", "");
	}
}

static void become(struct plan *p, char *base)
{
	const char *cwd = base + p->cwd;
	int there = p->cwd ? try_chdir(cwd) : 1;
	if (p->flags & PLAN_CAPABILITIES) {
		for (int c = 0; c < 64; c++) {
			if (p->bounding & (1ULL << c))
				continue;
			if (prctl(PR_CAPBSET_DROP, c, 0, 0, 0) != 0) {
				if (errno == EINVAL)
					break; // the kernel's last one was before
				fail("drop a capability of the bounding set", "");
			}
		}
	}
	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0)
		fail("keep the capabilities", "");
	if (syscall(SYS_setgroups, (size_t)p->ngroups, (const uint32_t *)(base + p->groups)) != 0)
		fail("set the supplementary groups", "");
	if (syscall(SYS_setresgid, p->gid, p->gid, p->gid) != 0)
		fail("become the group", "");
	if (syscall(SYS_setresuid, p->uid, p->uid, p->uid) != 0)
		fail("become the user", "");
	if (!there && chdir(cwd) != 0)
		fail("change to the working directory", cwd);
	check_cwd();
	if (prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) != 0)
		fail("drop the kept capabilities", "");
	if (!(p->flags & PLAN_CAPABILITIES))
		return;
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {
		{(uint32_t)p->effective, (uint32_t)p->permitted, (uint32_t)p->inheritable},
		{(uint32_t)(p->effective >> 32), (uint32_t)(p->permitted >> 32), (uint32_t)(p->inheritable >> 32)}};
	if (syscall(SYS_capset, &head, data) != 0)
		fail("set the capabilities", "");
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 && errno != EINVAL)
		fail("clear the ambient capabilities", "");
	for (int c = 0; c < 64; c++)
		if (p->ambient & (1ULL << c) && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, c, 0, 0) != 0)
			fail("raise an ambient capability", "");
}

static void pass_gate(uint32_t flags)
{
	char c;
	ssize_t n;
	do
		n = read(GATE_FD, &c, 1);
	while (n < 0 && errno == EINTR);
	if (n != 1)
		_exit(255); // the worker has gone, and with it who asked for this process
	told = flags & PLAN_TELL;
}

static void run(void)
{
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	prctl(PR_SET_NAME, STUB_NAME, 0, 0, 0);
	for (int s = 1; s < 65; s++)
		if (s != SIGKILL && s != SIGSTOP)
			signal(s, SIG_DFL);
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);

	struct stat st;
	if (fstat(PLAN_FD, &st) != 0 || st.st_size < (off_t)sizeof(struct plan))
		fail("read the plan", "");
	char *base = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, PLAN_FD, 0);
	if (base == MAP_FAILED)
		fail("map the plan", "");
	struct plan *p = (struct plan *)base;
	if (p->magic != PLAN_MAGIC || p->size != (uint32_t)st.st_size) {
		errno = EPROTO;
		fail("read the plan", "");
	}
	char **argv = calloc(p->argc + 1, sizeof *argv), **envp = calloc(p->envc + 1, sizeof *envp);
	if (!argv || !envp)
		fail("allocate memory", "");
	for (uint32_t i = 0; i < p->argc; i++)
		argv[i] = base + ((uint32_t *)(base + p->argv))[i];
	for (uint32_t i = 0; i < p->envc; i++)
		envp[i] = base + ((uint32_t *)(base + p->envp))[i];

	// What the worker itself has inherited, of whoever started it, is not the container's.
	int next = CGROUP_FD + (int)p->cgroups;
	int nsfd = p->flags & PLAN_JOIN_CGROUP_NS ? next++ : -1;
	int proc = p->label || p->apparmor ? next++ : -1;
	syscall(SYS_close_range, next, ~0U, 0);
	join_cgroups(p->cgroups);
	for (int fd = PLAN_FD; fd <= GATE_FD; fd++)
		fcntl(fd, F_SETFD, FD_CLOEXEC);
	if (proc >= 0)
		fcntl(proc, F_SETFD, FD_CLOEXEC);
	// Not before the birth: from within a cgroup namespace nobody comes into a cgroup who is outside of it (the mount option nsdelegate, which
	// systemd sets).
	if (nsfd >= 0) {
		if (setns(nsfd, CLONE_NEWCGROUP) != 0)
			fail("join the container's cgroup namespace", "");
		close(nsfd);
	}
	if (p->flags & PLAN_CGROUP_NS && unshare(CLONE_NEWCGROUP) != 0)
		fail("make a cgroup namespace", "");
	complete_mounts(p, base);
	set_limits(p, base);
	fault = STATUS_ERROR;
	if (setsid() < 0)
		fail("make a session", "");
	if (p->flags & PLAN_TERMINAL && ioctl(0, TIOCSCTTY, 0) != 0)
		fail("take the terminal", "");
	if (p->keyring) {
		if (p->label)
			label_next(proc, "keycreate", base + p->label);
		join_keyring(p, base + p->keyring);
		if (p->label)
			label_next(proc, "keycreate", "\n"); // what comes after is the program's
	}
	if (p->label)
		label_next(proc, "exec", base + p->label);
	if (p->apparmor)
		confine_next(proc, base + p->apparmor);
	if (proc >= 0)
		close(proc);
	umask(p->umask);
	if (p->flags & PLAN_NO_NEW_PRIVS && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		fail("set no_new_privs", "");
	// To load a filter takes a privilege, unless no new ones can be had.
	if (p->nfilter && !(p->flags & PLAN_NO_NEW_PRIVS))
		load_filter(p, base);
	become(p, base);
	char ready = STATUS_READY;
	send(STATUS_FD, &ready, 1, MSG_NOSIGNAL);
	pass_gate(p->flags);
	if (p->nfilter && p->flags & PLAN_NO_NEW_PRIVS)
		load_filter(p, base);
	execve(base + p->path, argv, envp);
	fail("exec", base + p->path);
}

__attribute__((constructor)) static void monopod_stub(int argc, char **argv, char **envp)
{
	(void)envp;
	if (argc == 1 && strcmp(argv[0], STUB_NAME) == 0)
		run();
	// Go raises it for itself, and gives it back to what it executes; what is executed here has to be given it back by us.
	getrlimit(RLIMIT_NOFILE, &monopod_nofile);
}
