#ifndef MONOPOD_SPAWN_PLAN_H
#define MONOPOD_SPAWN_PLAN_H

#include <stdint.h>

// What passes between the worker, the zygote and a start process: the plan, requests, descriptors and messages.

// The plan: what a start process has to do, in a memory file. Strings and arrays are offsets from the plan's begin; 0 is none.
// plan.go writes it. All decisions are made there; here it is carried out.
struct plan {
	uint32_t magic, size;
	uint32_t flags, umask;
	uint32_t uid, gid;
	uint32_t groups, ngroups; // array of uint32_t
	uint64_t bounding, effective, permitted, inheritable, ambient;
	uint32_t program;     // the program as it is asked for: a path, or a name to look for
	uint32_t search, cwd; // where to look for it, as PATH has it; the working directory
	uint32_t argv, argc;  // array of offsets
	uint32_t envp, envc;
	uint32_t filter, nfilter, filterflags; // array of struct sock_filter
	uint32_t keyring, keykeep, keynew;
	uint32_t readonly, nreadonly; // arrays of offsets: paths to make read-only, and to hide
	uint32_t masked, nmasked;
	uint32_t limits, nlimits; // array of struct limit
	uint32_t label, filelabel; // the program's SELinux label, and that of its files
	uint32_t apparmor;         // what to write so that the program is confined by an AppArmor profile
	uint32_t width, height;    // of the terminal

	// Of a container's first process only:
	uint32_t rootfs, rootpropagation; // MS_PRIVATE or MS_SLAVE
	uint32_t rootshared;              // MS_SHARED, perhaps with MS_REC; 0: it is not
	uint32_t namespaces, nnamespaces; // array of struct namespace
	uint32_t hierarchies, nhierarchies; // array of struct hierarchy
	uint32_t mounts, nmounts; // array of struct mount_plan
	uint32_t devices, ndevices; // array of struct device
	uint32_t links, nlinks; // array of struct link, in /dev
};

struct limit {
	uint64_t resource, soft, hard;
};

// A namespace to join, or to make.
struct namespace {
	uint32_t kind; // CLONE_NEW...
	uint32_t path; // 0: a new one
};

// A hierarchy of cgroups as the container sees it.
struct hierarchy {
	uint32_t dir;         // of the host
	uint32_t name;        // of its folder; 0: version 2, which has none
	uint32_t also, nalso; // array of offsets: further names, links to it
};

struct mount_plan {
	uint32_t kind, flags;
	uint32_t source, destination; // that of the container is relative and clean
	uint32_t fstype, data, label; // of a new file system
	uint32_t propagation, npropagation; // array of uint32_t, MS_ flags
	uint64_t set, clear; // MOUNT_ATTR_
	uint64_t recset, recclear, recpropagation; // with MOUNT_RECATTR, of all that is mounted below, too
};

enum { MOUNT_BIND = 1, MOUNT_NEW, MOUNT_CGROUP, MOUNT_PROC };

enum {
	MOUNT_REC = 1 << 0,
	MOUNT_RECATTR = 1 << 1,
	MOUNT_NO_LINKS = 1 << 2,   // no link on the way to where it goes
	MOUNT_TMPFS = 1 << 3,      // it gets the mode of what it covers
	MOUNT_LABEL_ROOT = 1 << 4, // its root is labelled, not the file system
	MOUNT_READONLY_LATE = 1 << 5,
	MOUNT_PROC_FILE = 1 << 6, // one of those files of /proc that may be covered
	MOUNT_AT_PROC = 1 << 7,   // at /proc itself
	MOUNT_IN_PROC = 1 << 8,   // below it
};

struct device {
	uint32_t folder, name; // relative and clean
	uint32_t path;         // the host's, where PLAN_BIND_DEVICES is set
	uint32_t mode;         // kind and permissions
	uint32_t uid, gid;
	uint64_t number;
};

struct link {
	uint32_t target, name;
};

#define PLAN_MAGIC 0x4d504c35u

enum {
	PLAN_NO_NEW_PRIVS = 1 << 0,
	PLAN_TERMINAL = 1 << 1,  // a terminal of the container's own instead of the descriptors given
	PLAN_CGROUP_NS = 1 << 2, // a cgroup namespace of its own
	PLAN_CAPABILITIES = 1 << 3,
	PLAN_TELL = 1 << 4, // a program that cannot be executed is also told on stderr
	PLAN_READONLY_ROOT = 1 << 5,
	PLAN_ROOT = 1 << 6,         // a container's first process: its place is made; else that of TARGET_FD is joined
	PLAN_LOOPBACK = 1 << 7,     // the loopback interface of the network namespace is switched on
	PLAN_DEV = 1 << 8,          // /dev is filled
	PLAN_BIND_DEVICES = 1 << 9, // this host forbids to make device nodes: its own are shown
	PLAN_HOME = 1 << 10,        // HOME is not in the environment: it is looked up
	PLAN_LATE = 1 << 11,        // the process becomes the user only in its PID namespace: the filter would not let it be born there after
};

// A request to the zygote: descriptors come with it in the order of the slots, those that it has.
struct request {
	uint32_t magic;
	uint32_t has;    // a bit a slot
	uint32_t ntasks; // further descriptors behind them: files "tasks" to join cgroups by
	uint32_t newpid; // a PID namespace of its own
};

#define REQUEST_MAGIC 0x4d505251u

enum { SLOT_PLAN, SLOT_STATUS, SLOT_GATE, SLOT_IN, SLOT_OUT, SLOT_ERR, SLOT_CGROUP, SLOT_TARGET, SLOTS };

#define MAX_TASKS 32

// Descriptors that the zygote is executed with: the socket of the requests, the empty mount namespace, the host's /proc, and its /dev/null by
// a read-only mount.
enum { ZYGOTE_SOCKET = 3, ZYGOTE_EMPTY, ZYGOTE_PROC, ZYGOTE_NULL, ZYGOTE_END };

// What is sent over the status socket. BORN comes from the zygote, with the pid and a pidfd of the start process, or with an errno. The
// others come from the process itself: TERMINAL with the master of its terminal; SUCCEEDED from another one that goes on in its place, before
// anything else, from which the worker learns its pid; READY when it waits at its gate; or, with a text, BROKEN, when the place cannot be made, and ERROR, when the program cannot be executed in it as that user.
#define STATUS_BORN 'P'
#define STATUS_TERMINAL 'T'
#define STATUS_SUCCEEDED 'S'
#define STATUS_READY 'R'
#define STATUS_BROKEN 'B'
#define STATUS_ERROR 'E'

struct born {
	char kind;
	char pad[3];
	int32_t pid;   // 0: it was not born
	int32_t error; // an errno
};

#define START_NAME "monopod:start"

// Descriptors of a start process, behind the three of its stdio.
enum { STATUS_FD = 3, GATE_FD, PLAN_FD, EMPTY_FD, PROC_FD, NULL_FD, TARGET_FD, CGROUP_FD };

static inline const char *text_of(const struct plan *p, uint32_t at) { return at ? (const char *)p + at : ""; }
static inline const uint32_t *words_of(const struct plan *p, uint32_t at) { return (const uint32_t *)((const char *)p + at); }

#endif
