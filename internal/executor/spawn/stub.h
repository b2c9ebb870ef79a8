#ifndef MONOPOD_SPAWN_STUB_H
#define MONOPOD_SPAWN_STUB_H

#include <stdint.h>
#include <sys/resource.h>

// The plan: what the stub has to do, in a memory file that it finds as descriptor PLAN_FD. Strings and arrays are offsets
// from the plan's begin; 0 is none. plan.go writes it.
struct plan {
	uint32_t magic, size;
	uint32_t flags, umask;
	uint32_t uid, gid;
	uint32_t groups, ngroups; // array of uint32_t
	uint64_t bounding, effective, permitted, inheritable, ambient;
	uint32_t path, cwd;
	uint32_t argv, argc; // array of offsets
	uint32_t envp, envc;
	uint32_t filter, nfilter, filterflags; // array of struct sock_filter
	uint32_t keyring, keykeep, keynew;
	uint32_t cgroups; // how many descriptors from CGROUP_FD on are files "tasks" to join by
	uint32_t proc, procattrs; // options and attributes of the file system to mount at /proc, if PLAN_PROC is set
	uint32_t readonly, nreadonly; // arrays of offsets: paths to make read-only, and to hide
	uint32_t masked, nmasked;
	uint32_t limits, nlimits; // array of struct limit
	uint32_t label, filelabel; // the program's SELinux label, and that of its files
	uint32_t apparmor; // what to write so that the program is confined by an AppArmor profile
};

struct limit {
	uint64_t resource, soft, hard;
};

#define PLAN_MAGIC 0x4d504c34u

enum {
	PLAN_NO_NEW_PRIVS = 1 << 0,
	PLAN_TERMINAL = 1 << 1,  // descriptor 0 is the terminal to have
	PLAN_CGROUP_NS = 1 << 2, // a cgroup namespace of its own
	PLAN_CAPABILITIES = 1 << 3,
	PLAN_PROC = 1 << 5,
	PLAN_READONLY_ROOT = 1 << 6,
	PLAN_JOIN_CGROUP_NS = 1 << 7, // not a new one, but that of the container's first process
	PLAN_TELL = 1 << 4, // a program that cannot be executed is also told on stderr
};

// Descriptors of the stub, behind the three of its stdio. Behind those of cgroups are the pidfd of PLAN_JOIN_CGROUP_NS, if it is set, and the
// host's /proc, if the plan has a label or a profile.
enum { PLAN_FD = 3, STATUS_FD = 4, GATE_FD = 5, CGROUP_FD = 6 };

// What is sent over STATUS_FD: STATUS_READY when all is done but what comes after the gate; or with a text STATUS_BROKEN, when the place
// cannot be completed, and STATUS_ERROR, when the program cannot be executed in it as that user.
#define STATUS_READY 'R'
#define STATUS_BROKEN 'B'
#define STATUS_ERROR 'E'

#define STUB_NAME "monopod-start"

// The limit of open files that this program was started with.
extern struct rlimit monopod_nofile;

// complete_mounts makes the mounts that only a process in the PID namespace can make, and what lies on them.
void complete_mounts(const struct plan *p, char *base);

// fail tells what went wrong, by errno, and ends the process.
void fail(const char *what, const char *arg) __attribute__((noreturn));

int monopod_spawn(int exe, const int *fds, int nfds, uint64_t flags, int cgroup, int *pidfd);

#endif
