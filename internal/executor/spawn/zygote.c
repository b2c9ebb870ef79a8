//go:build cgo

// The zygote: this binary, executed anew, which never comes to Go's runtime. It has one thread, no secrets and hardly any memory, and lets a
// copy of itself be born for each start, which becomes a child of the worker. The copy is what touches the container (start.c); the zygote
// itself touches nothing but its socket, so that nothing of a container's can hold it up.
#define _GNU_SOURCE
#include "zygote.h"

#include "plan.h"
#include "start.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif

struct rlimit monopod_nofile, monopod_memlock;

struct clone3_args {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
};

// A request as it came: its descriptors by slot, -1 for none.
struct job {
	struct request head;
	int slots[SLOTS];
	int tasks[MAX_TASKS];
};

static void close_job(const struct job *j)
{
	for (int i = 0; i < SLOTS; i++)
		if (j->slots[i] >= 0)
			close(j->slots[i]);
	for (uint32_t i = 0; i < j->head.ntasks && i < MAX_TASKS; i++)
		if (j->tasks[i] >= 0)
			close(j->tasks[i]);
}

// take_job waits for a request. It returns 0 when the worker has gone.
static int take_job(struct job *j)
{
	union {
		char room[CMSG_SPACE(sizeof(int) * (SLOTS + MAX_TASKS))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {&j->head, sizeof j->head};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	ssize_t n;
	memset(j->slots, -1, sizeof j->slots);
	memset(j->tasks, -1, sizeof j->tasks);
	memset(&j->head, 0, sizeof j->head);
	do
		n = recvmsg(ZYGOTE_SOCKET, &msg, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return 0;
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	int *fds = NULL, nfds = 0, next = 0;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
		fds = (int *)CMSG_DATA(c);
		nfds = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
	}
	for (int i = 0; i < SLOTS && next < nfds; i++)
		if (j->head.has & 1u << i)
			j->slots[i] = fds[next++];
	int tasks = 0;
	while (next < nfds && tasks < MAX_TASKS)
		j->tasks[tasks++] = fds[next++];
	// The worker and this process are one program; what does not fit is a fault, and is answered by the end of the status socket.
	if (n != sizeof j->head || j->head.magic != REQUEST_MAGIC || msg.msg_flags & (MSG_CTRUNC | MSG_TRUNC) || tasks != (int)j->head.ntasks)
		j->head.magic = 0;
	j->head.ntasks = (uint32_t)tasks;
	return 1;
}

// place_fd makes a descriptor the one of that number. What is there already is out of use by then.
static void place_fd(int fd, int as)
{
	if (fd >= 0 && dup3(fd, as, O_CLOEXEC) < 0)
		_exit(255);
}

// begin is the new process. All descriptors are moved up first, so that none lies where another one is to be.
static void begin(struct job *j)
{
	const int above = CGROUP_FD + MAX_TASKS;
	for (int i = SLOT_IN; i <= SLOT_ERR; i++)
		if (j->slots[i] < 0)
			j->slots[i] = ZYGOTE_NULL; // it holds the number's place: see open_streams
	int given[] = {j->slots[SLOT_IN], j->slots[SLOT_OUT], j->slots[SLOT_ERR], j->slots[SLOT_STATUS], j->slots[SLOT_GATE], j->slots[SLOT_PLAN],
		       ZYGOTE_EMPTY, ZYGOTE_PROC, ZYGOTE_NULL, j->slots[SLOT_TARGET]};
	int n = sizeof given / sizeof *given, ntasks = (int)j->head.ntasks;
	for (int i = 0; i < n; i++)
		if (given[i] >= 0 && (given[i] = fcntl(given[i], F_DUPFD_CLOEXEC, above)) < 0)
			_exit(255);
	for (int i = 0; i < ntasks; i++)
		if ((j->tasks[i] = fcntl(j->tasks[i], F_DUPFD_CLOEXEC, above)) < 0)
			_exit(255);
	int into = -1;
	if (j->slots[SLOT_CGROUP] >= 0 && (into = fcntl(j->slots[SLOT_CGROUP], F_DUPFD_CLOEXEC, above)) < 0)
		_exit(255);
	for (int i = 0; i < n; i++) {
		if (given[i] < 0)
			close(i);
		place_fd(given[i], i);
	}
	for (int i = 0; i < ntasks; i++)
		place_fd(j->tasks[i], CGROUP_FD + i);
	if (into >= 0) {
		// A kernel without clone3, or a host that forbids it: the process was born beside its cgroup, and joins it as it does others.
		int procs = openat(into, "cgroup.procs", O_WRONLY | O_CLOEXEC);
		if (procs < 0)
			_exit(255);
		place_fd(procs, CGROUP_FD + ntasks++);
	}
	// The numbers above are all taken by copies now. Where this cannot be had, descriptors of the host's would stay open in the container.
	if (syscall(SYS_close_range, CGROUP_FD + ntasks, ~0U, 0) != 0)
		_exit(255);
	start(ntasks);
}

// bear lets the process be born: as a child of this process's parent, in its cgroup, and in a PID namespace of its own if it is to have one.
static long bear(struct job *j, int *pidfd)
{
	struct clone3_args args;
	memset(&args, 0, sizeof args);
	args.flags = CLONE_PARENT | CLONE_PIDFD | (j->head.newpid ? CLONE_NEWPID : 0);
	args.pidfd = (uint64_t)(uintptr_t)pidfd;
	if (j->slots[SLOT_CGROUP] >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)j->slots[SLOT_CGROUP];
	}
	*pidfd = -1;
	long pid = syscall(SYS_clone3, &args, sizeof args);
	if (pid == 0) {
		if (j->slots[SLOT_CGROUP] >= 0)
			close(j->slots[SLOT_CGROUP]);
		j->slots[SLOT_CGROUP] = -1;
		begin(j);
	}
	if (pid > 0 || (errno != ENOSYS && errno != EPERM))
		return pid;
	// It is refused by a filter that this program itself runs under.
	pid = syscall(SYS_clone, CLONE_PARENT | CLONE_PIDFD | (j->head.newpid ? CLONE_NEWPID : 0) | SIGCHLD, 0, pidfd, 0, 0);
	if (pid == 0)
		begin(j);
	return pid;
}

static void answer(int status, long pid, int error, int pidfd)
{
	struct born b = {.kind = STATUS_BORN, .pid = pid > 0 ? (int32_t)pid : 0, .error = error};
	struct iovec iov = {&b, sizeof b};
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	if (pidfd >= 0) {
		memset(&control, 0, sizeof control);
		msg.msg_control = &control;
		msg.msg_controllen = sizeof control.room;
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &pidfd, sizeof pidfd);
	}
	sendmsg(status, &msg, MSG_NOSIGNAL); // a worker that has gone needs no answer: the process ends by itself
}

extern char __executable_start, etext; // the linker's: where the program's image begins, and its code ends

// forget_code gives back the pages of code that only the start has needed. What is needed again comes back by itself.
static void forget_code(void)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)&__executable_start & ~(page - 1), to = (uintptr_t)&etext & ~(page - 1);
	madvise((void *)from, to - from, MADV_DONTNEED);
}

static void zygote(void)
{
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	prctl(PR_SET_NAME, "monopod-zygote", 0, 0, 0);
	for (int s = 1; s < 65; s++)
		if (s != SIGKILL && s != SIGSTOP)
			signal(s, SIG_DFL);
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	// What the worker itself has inherited, of whoever started it, is not the container's.
	if (syscall(SYS_close_range, ZYGOTE_END, ~0U, 0) != 0)
		_exit(254);
	setsid(); // a signal to the worker's terminal is none to the zygote
	forget_code();
	struct job j;
	while (take_job(&j)) {
		if (j.head.magic == REQUEST_MAGIC && j.slots[SLOT_STATUS] >= 0 && j.slots[SLOT_PLAN] >= 0) {
			int pidfd = -1;
			long pid = bear(&j, &pidfd);
			answer(j.slots[SLOT_STATUS], pid, pid < 0 ? errno : 0, pidfd);
			if (pidfd >= 0)
				close(pidfd);
		}
		close_job(&j);
	}
	_exit(0);
}

__attribute__((constructor)) static void take_over(int argc, char **argv, char **envp)
{
	(void)envp;
	if (argc == 1 && strcmp(argv[0], START_NAME) == 0)
		zygote();
	// Go raises the one for itself, the library that loads device rules on cgroup version 2 the other; what is executed here is given back both.
	getrlimit(RLIMIT_NOFILE, &monopod_nofile);
	getrlimit(RLIMIT_MEMLOCK, &monopod_memlock);
}
