//go:build cgo

// A start process: a copy of the zygote, born where a container's process is to run (its cgroup, and its PID namespace if that is new). All that
// touches a container's files, devices and namespaces happens here, under the container's own limits and device rules: whatever lies
// there can neither reach another container's secrets, for they are not in this memory, nor hold up anybody else. It ends as the program,
// or is killed.
//
// A process that is to run in a PID namespace in which others are already does its work outside of it, where they do not see it, and lets
// another one be born in there when it has become the user and has no privilege left that somebody could take over from it.
#define _GNU_SOURCE
#include "start.h"

#include "inside.h"
#include "paths.h"
#include "place.h"
#include "plan.h"
#include "tell.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/keyctl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef PR_CAP_AMBIENT
#define PR_CAP_AMBIENT 47
#define PR_CAP_AMBIENT_RAISE 2
#define PR_CAP_AMBIENT_CLEAR_ALL 4
#endif

static void join_cgroups(int n)
{
	// A thread that moves itself does not wait for the kernel's lock of all thread groups, as the mover of another does.
	for (int i = 0; i < n; i++) {
		if (write(CGROUP_FD + i, "0", 1) != 1)
			fail("join the container's cgroup", "");
		close(CGROUP_FD + i);
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

static void load_filter(const struct plan *p)
{
	struct sock_fprog prog = {.len = (unsigned short)p->nfilter, .filter = (struct sock_filter *)((char *)(uintptr_t)p + p->filter)};
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, p->filterflags, &prog) != 0)
		fail("load the seccomp filter", "");
}

// try_chdir follows no magic link: /proc/self/fd/N may lead anywhere. A directory that only the user may enter is entered later.
static int try_chdir(const char *cwd)
{
	int dir = open_plain(cwd, O_PATH | O_DIRECTORY);
	int there = dir >= 0 && fchdir(dir) == 0;
	if (!there && errno != EACCES && errno != EPERM)
		fail("change to the working directory", cwd);
	if (dir >= 0)
		close(dir);
	return there;
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

static void set_limits(const struct plan *p)
{
	const struct limit *all = (const struct limit *)words_of(p, p->limits);
	for (uint32_t i = 0; i < p->nlimits; i++) {
		struct rlimit64 l = {.rlim_cur = all[i].soft, .rlim_max = all[i].hard};
		if (syscall(SYS_prlimit64, 0, (int)all[i].resource, &l, NULL) != 0)
			fail("set a resource limit", "");
	}
}

// effective_of are the capabilities that act when the program is executed. A user who is not root has those in the ambient set alone, whatever else the
// specification names: the kernel takes the others away in execve. A look, or an execve, that had them would find programs that the user cannot read.
static uint64_t effective_of(const struct plan *p)
{
	uint64_t named = p->uid == 0 ? ~0ULL : 0;
	if (p->flags & PLAN_CAPABILITIES)
		named = p->effective;
	return p->uid == 0 ? named : named & p->ambient;
}

// find_as_user looks the program up with the rights that it will have: what root finds may be out of its user's reach. They are had for the files
// alone, and for as long; the filter, which might forbid the look, is not there yet.
static const char *find_as_user(const struct plan *p)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct all[2], few[2];
	if (syscall(SYS_capget, &head, all) != 0)
		fail("read the capabilities", "");
	memcpy(few, all, sizeof few);
	uint64_t effective = effective_of(p);
	few[0].effective &= (uint32_t)effective;
	few[1].effective &= (uint32_t)(effective >> 32);
	if (syscall(SYS_setgroups, (size_t)p->ngroups, words_of(p, p->groups)) != 0)
		fail("set the supplementary groups", "");
	// These two say nothing of a failure; asked for what cannot be, they tell what is.
	syscall(SYS_setfsgid, p->gid);
	syscall(SYS_setfsuid, p->uid);
	if ((uint32_t)syscall(SYS_setfsgid, -1) != p->gid || (uint32_t)syscall(SYS_setfsuid, -1) != p->uid) {
		errno = EPERM;
		fail("look for the program as its user", "");
	}
	if (syscall(SYS_capset, &head, few) != 0)
		fail("look for the program as its user", "");
	program_fault();
	const char *program = find_program(p);
	place_fault();
	if (syscall(SYS_capset, &head, all) != 0)
		fail("get the capabilities back", "");
	syscall(SYS_setfsuid, 0);
	syscall(SYS_setfsgid, 0);
	if (syscall(SYS_setfsgid, -1) != 0 || syscall(SYS_setfsuid, -1) != 0) {
		errno = EPERM;
		fail("be root again", "");
	}
	return program;
}

static void become(const struct plan *p, int there)
{
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
	if (syscall(SYS_setgroups, (size_t)p->ngroups, words_of(p, p->groups)) != 0)
		fail("set the supplementary groups", "");
	if (syscall(SYS_setresgid, p->gid, p->gid, p->gid) != 0)
		fail("become the group", "");
	if (syscall(SYS_setresuid, p->uid, p->uid, p->uid) != 0)
		fail("become the user", "");
	if (!there && !try_chdir(text_of(p, p->cwd)))
		fail("change to the working directory", text_of(p, p->cwd));
	check_cwd();
	if (prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) != 0)
		fail("drop the kept capabilities", "");
	if (!(p->flags & PLAN_CAPABILITIES))
		return;
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	uint64_t effective = effective_of(p);
	struct __user_cap_data_struct data[2] = {
		{(uint32_t)effective, (uint32_t)p->permitted, (uint32_t)p->inheritable},
		{(uint32_t)(effective >> 32), (uint32_t)(p->permitted >> 32), (uint32_t)(p->inheritable >> 32)}};
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
	if (flags & PLAN_TELL)
		speak_up();
}

// take_on makes this process the container's: its limits, keyring, labels, filter, user and capabilities. What a filter could forbid is done
// before it is loaded, as far as that is possible.
static void take_on(const struct plan *p)
{
	program_fault();
	int there = p->cwd ? try_chdir(text_of(p, p->cwd)) : 1;
	place_fault();
	set_limits(p);
	program_fault();
	if (p->keyring) {
		if (p->label)
			label_next(PROC_FD, "keycreate", text_of(p, p->label));
		join_keyring(p, text_of(p, p->keyring));
		if (p->label)
			label_next(PROC_FD, "keycreate", "\n"); // what comes after is the program's
	}
	if (p->label)
		label_next(PROC_FD, "exec", text_of(p, p->label));
	if (p->apparmor)
		confine_next(PROC_FD, text_of(p, p->apparmor));
	umask(p->umask);
	if (p->flags & PLAN_NO_NEW_PRIVS && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		fail("set no_new_privs", "");
	for (int fd = EMPTY_FD; fd <= TARGET_FD; fd++)
		close(fd);
	// To load a filter takes a privilege, unless no new ones can be had.
	if (p->nfilter && !(p->flags & PLAN_NO_NEW_PRIVS))
		load_filter(p);
	become(p, there);
}

// enter_pids goes on in another process, which is born in the PID namespace that has been joined, as a child of the worker. This one has
// nothing more to do; who gets the other one's messages gets its pid with them.
static void enter_pids(void)
{
	place_fault();
	long pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
	if (pid < 0)
		fail("start a process in the PID namespace", "");
	if (pid > 0)
		_exit(0);
	// Until this is told, the group finds it; from then on the worker knows its pid. Should it never be reaped, its namespace could not end.
	char succeeded = STATUS_SUCCEEDED;
	tell(&succeeded, 1, -1);
}

static struct plan *map_plan(void)
{
	struct stat st;
	if (fstat(PLAN_FD, &st) != 0 || st.st_size < (off_t)sizeof(struct plan))
		fail("read the plan", "");
	struct plan *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, PLAN_FD, 0);
	if (p == MAP_FAILED)
		fail("map the plan", "");
	if (p->magic != PLAN_MAGIC || p->size != (uint32_t)st.st_size) {
		errno = EPROTO;
		fail("read the plan", "");
	}
	close(PLAN_FD);
	return p;
}

// vector makes an array of strings, with room for one more.
static char **vector(const struct plan *p, uint32_t at, uint32_t n)
{
	char **v = calloc(n + 2, sizeof *v);
	if (!v)
		fail("allocate memory", "");
	for (uint32_t i = 0; i < n; i++)
		v[i] = (char *)(uintptr_t)text_of(p, words_of(p, at)[i]);
	return v;
}

static int joins_pids(const struct plan *p)
{
	const struct namespace *all = (const struct namespace *)words_of(p, p->namespaces);
	for (uint32_t i = 0; i < p->nnamespaces; i++)
		if (all[i].kind == CLONE_NEWPID && all[i].path)
			return 1;
	return 0;
}

void start(int ntasks)
{
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	prctl(PR_SET_NAME, "monopod-start", 0, 0, 0);
	join_cgroups(ntasks);
	struct plan *p = map_plan();
	char **argv = vector(p, p->argv, p->argc), **envp = vector(p, p->envp, p->envc);
	int born = 1; // in the PID namespace already
	if (p->flags & PLAN_ROOT) {
		born = !joins_pids(p);
		make_place(p);
	} else {
		born = 0;
		join_place();
	}
	if (!born)
		setpgid(0, 0); // the group that its successor is born in
	open_streams(p);
	if (p->flags & PLAN_HOME) {
		char *home;
		if (asprintf(&home, "HOME=%s", find_home(p->uid)) < 0)
			fail("allocate memory", "");
		envp[p->envc] = home;
	}
	const char *program = find_as_user(p);
	if (p->flags & PLAN_ROOT) {
		if (p->flags & PLAN_TERMINAL)
			mount_console();
		make_cwd(p);
	}
	// Early: what takes a privilege is done before this process shows up among others.
	int early = !born && !(p->flags & PLAN_LATE) && complete_mounts(p, 1);
	if (early)
		take_on(p);
	if (!born)
		enter_pids();
	if (!early)
		complete_mounts(p, 0);
	program_fault();
	if (setsid() < 0)
		fail("make a session", "");
	if (p->flags & PLAN_TERMINAL && ioctl(0, TIOCSCTTY, 0) != 0)
		fail("take the terminal", "");
	if (!early)
		take_on(p);
	char ready = STATUS_READY;
	tell(&ready, 1, -1);
	pass_gate(p->flags);
	if (p->nfilter && p->flags & PLAN_NO_NEW_PRIVS)
		load_filter(p);
	execve(program, argv, envp);
	fail("exec", program);
}
