//go:build cgo

// The two processes that make a pod's init, of which the second is it. See podinit.go.
//
// Both run before Go's runtime starts, and neither ever comes to it: that is what keeps the init small. Neither touches
// more memory than it must, because what the first one has written stays the second one's.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NAME "monopod:pod-init" // argv[0] by which this program knows that it is to be an init
#define CHANNEL 3               // the socket on which the worker says "go", and hears what came of it
#define FIRST_NS 4              // the first namespace to join; argv[1..] say which kind each is
#define NOBODY 65535            // an id that owns nothing

// kernel is a system call that touches no memory: neither errno nor libc's code.
#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
static inline __attribute__((always_inline)) long kernel(long nr, long a, long b, long c, long d, long e)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	__asm__ volatile("syscall" : "+a"(nr) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
	return nr;
}
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
static inline __attribute__((always_inline)) long kernel(long nr, long a, long b, long c, long d, long e)
{
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
	return x0;
}
#else
#error "add this architecture: its name in linux/audit.h, and its system calls"
#endif

#ifndef __has_attribute
#define __has_attribute(x) 0
#endif
#if __has_attribute(no_stack_protector)
#define SELF_CONTAINED __attribute__((noinline, noclone, aligned(4096), no_stack_protector))
#else
#define SELF_CONTAINED __attribute__((noinline, noclone, aligned(4096)))
#endif

extern char __executable_start, etext; // the linker's: where the program's image begins, and its code ends

// message is what the worker hears: 'P' and the init's pid; 'R': it is ready; 'E', an errno and what failed.
struct message {
	int32_t kind;
	int32_t value;
	char step[32];
};

static void say(int32_t kind, int32_t value, const char *step)
{
	struct message m = { .kind = kind, .value = value };
	strncpy(m.step, step, sizeof(m.step) - 1);
	while (write(CHANNEL, &m, sizeof(m)) < 0 && errno == EINTR)
		;
}

static void fail(const char *step)
{
	say('E', errno, step);
	_exit(1);
}

// empty_root gives the calling process, in a mount namespace of its own, a root directory with nothing in it, and lets
// go of all other mounts: neither can /proc/1/root lead anywhere, nor does the init keep a mount alive.
static void empty_root(void)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		fail("make mounts private");
	// /proc is there on any host that runs an executor, and nobody needs it here.
	if (mount("pod-init", "/proc", "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0555") < 0)
		fail("mount an empty root");
	if (chdir("/proc") < 0)
		fail("enter the empty root");
	if (syscall(SYS_pivot_root, ".", ".") < 0)
		fail("pivot_root");
	if (umount2(".", MNT_DETACH) < 0)
		fail("detach the old root");
	if (chdir("/") < 0)
		fail("enter the root");
}

// become_nobody drops the ids, as far as the user namespace has others, and all capabilities.
static void become_nobody(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2];
	int cap;

	for (cap = 0; prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0; cap++)
		;
	if (errno != EINVAL) // the first number that is no capability
		fail("drop the bounding set");
	if (syscall(SYS_setgroups, 0, NULL) < 0 && errno != EPERM) // a user namespace may forbid it
		fail("setgroups");
	if (syscall(SYS_setresgid, NOBODY, NOBODY, NOBODY) < 0 && errno != EINVAL)
		fail("setresgid");
	if (syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY) < 0 && errno != EINVAL)
		fail("setresuid");
	memset(none, 0, sizeof(none));
	if (syscall(SYS_capset, &head, none) < 0)
		fail("capset");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		fail("no_new_privs");
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		fail("not dumpable");
}

static void close_all(void)
{
	int fd, max;

	if (syscall(SYS_close_range, 0, ~0U, 0) == 0)
		return;
	max = sysconf(_SC_OPEN_MAX); // kernels before 5.9
	for (fd = 0; fd < max; fd++)
		close(fd);
}

// sleep_forever gives all of the program back to the kernel but the page that it is in itself and the stack, forbids
// all system calls but those that a sleep is made of, should somebody ever get to steer this process, and sleeps.
//
// It must fit into one page and need nothing outside of it. What is writable is emptied rather than unmapped, because the
// kernel may write to it (the C library's rseq area) and sends a SIGSEGV where it cannot.
SELF_CONTAINED static void sleep_forever(unsigned long start, unsigned long code_end, unsigned long end, unsigned long page_size,
					 struct sock_fprog *filter)
{
	unsigned long page = (unsigned long)sleep_forever & ~(page_size - 1);

	code_end &= ~(page_size - 1);
	kernel(SYS_munmap, start, page - start, 0, 0, 0);
	if (code_end > page + page_size)
		kernel(SYS_munmap, page + page_size, code_end - page - page_size, 0, 0, 0);
	kernel(SYS_madvise, code_end, end - code_end, MADV_DONTNEED, 0, 0); // the rest of it too, where there are gaps
	kernel(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (long)filter, 0, 0); // a kernel without seccomp has it not
	for (;;)
		kernel(SYS_ppoll, 0, 0, 0, 0, 0);
}

static void be_idle(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ppoll, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_restart_syscall, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .len = sizeof(filter) / sizeof(filter[0]), .filter = filter };

	sleep_forever((unsigned long)&__executable_start, (unsigned long)&etext, (unsigned long)sbrk(0), sysconf(_SC_PAGESIZE), &prog);
}

// be_init is pid 1 of the new namespace.
//
// Signals need no handlers. The kernel keeps from a namespace's init each signal for which it has the default action,
// SIGKILL and SIGSTOP included, unless they come from outside; and of those from outside all but these two. To be sure
// they are blocked besides. SIGCHLD is ignored, which makes the kernel reap: whoever is orphaned in the pod leaves no
// zombie, and the init need not even wake up.
static void be_init(void)
{
	struct rlimit nothing = { 0, 0 };
	sigset_t all;
	int sig;

	for (sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL); // it fails for those that cannot be changed, which have it
	signal(SIGCHLD, SIG_IGN);
	sigfillset(&all);
	if (sigprocmask(SIG_SETMASK, &all, NULL) < 0)
		fail("block signals");
	if (setsid() < 0 && errno != EPERM)
		fail("setsid");
	if (prctl(PR_SET_NAME, "pod-init", 0, 0, 0) < 0)
		fail("set the name");
	if (setrlimit(RLIMIT_CORE, &nothing) < 0)
		fail("forbid core files");
	empty_root();
	become_nobody();
	say('R', 0, "");
	close_all();
	be_idle();
}

static int kind_of(const char *name)
{
	if (strcmp(name, "net") == 0)
		return CLONE_NEWNET;
	if (strcmp(name, "ipc") == 0)
		return CLONE_NEWIPC;
	if (strcmp(name, "uts") == 0)
		return CLONE_NEWUTS;
	if (strcmp(name, "user") == 0)
		return CLONE_NEWUSER;
	errno = EINVAL;
	fail(name);
	return 0;
}

// begin is the first process: single-threaded, as one must be to join a user namespace, it joins what there is to join, and
// clones the init, as a child of its own parent.
static void begin(int argc, char **argv)
{
	int flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
	char go;
	int i;
	long pid;

	// The worker first puts this process where the init is to be. If it dies meanwhile, this is the end.
	if (read(CHANNEL, &go, 1) != 1)
		_exit(1);
	for (i = 1; i < argc; i++) {
		int kind = kind_of(argv[i]);
		if (setns(FIRST_NS + i - 1, kind) < 0)
			fail("join a namespace");
		flags &= ~kind;
		if (kind == CLONE_NEWUSER) { // else what it makes would belong to nobody
			if (syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0)
				fail("become the namespace's root");
		}
	}
	pid = syscall(SYS_clone, flags | CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
	if (pid < 0)
		fail("clone");
	if (pid == 0)
		be_init();
	say('P', pid, "");
	_exit(0);
}

__attribute__((constructor)) static void take_over(int argc, char **argv)
{
	if (argc > 0 && strcmp(argv[0], NAME) == 0)
		begin(argc, argv);
}
