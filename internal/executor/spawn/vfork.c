//go:build cgo

#define _GNU_SOURCE
#include "stub.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif

struct clone3_args {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
};

// clone3 must not be a function: the child of a vfork would overwrite its return address.
static inline __attribute__((always_inline)) long clone3_inline(struct clone3_args *a, size_t n)
{
#if defined(__x86_64__)
	long ret;
	__asm__ volatile("syscall" : "=a"(ret) : "0"(SYS_clone3), "D"(a), "S"(n) : "rcx", "r11", "memory");
	return ret;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = SYS_clone3;
	register long x0 __asm__("x0") = (long)a;
	register long x1 __asm__("x1") = (long)n;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1) : "memory");
	return x0;
#else
#error "clone3 is written for x86_64 and aarch64"
#endif
}

// monopod_spawn executes the stub in a child, with the descriptors as 0, 1, 2 and so on; a negative one is left out. The calling
// thread waits until the child has executed. It returns the pid, or a negative errno.
__attribute__((noinline)) int monopod_spawn(int exe, const int *fds, int nfds, uint64_t flags, int cgroup, int *pidfd)
{
	static char *const argv[] = {STUB_NAME, NULL};
	static char *const envp[] = {NULL};
	volatile int error = 0;
	struct clone3_args args;
	memset(&args, 0, sizeof args);
	args.flags = flags | CLONE_VM | CLONE_VFORK | CLONE_PIDFD;
	args.pidfd = (uint64_t)(uintptr_t)pidfd;
	args.exit_signal = SIGCHLD;
	if (flags & CLONE_INTO_CGROUP)
		args.cgroup = (uint64_t)cgroup;
	// Go's signal handlers must not run in the child, which shares the memory and not the thread.
	sigset_t all, old;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &old);
	long pid = clone3_inline(&args, sizeof args);
	if (pid == 0) {
		// The descriptors may be among those that they are to become: all are moved out of the way first.
		int moved[64];
		for (int i = 0; i < nfds; i++)
			moved[i] = fds[i] < 0 ? -1 : fcntl(fds[i], F_DUPFD_CLOEXEC, nfds);
		int self = fcntl(exe, F_DUPFD_CLOEXEC, nfds);
		for (int i = 0; i < nfds; i++) {
			if (fds[i] < 0)
				close(i);
			else if (moved[i] < 0 || dup2(moved[i], i) < 0) {
				error = errno;
				_exit(127);
			}
		}
		syscall(SYS_execveat, self, "", argv, envp, AT_EMPTY_PATH);
		error = errno;
		_exit(127);
	}
	sigprocmask(SIG_SETMASK, &old, NULL);
	if (pid < 0) {
		*pidfd = -1; // the kernel may have written a number before it failed, which is somebody else's by now
		return (int)pid;
	}
	if (error) {
		// The caller reaps it by the pidfd.
		return -error;
	}
	return (int)pid;
}
