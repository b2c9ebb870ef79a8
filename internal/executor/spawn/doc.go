// Package spawn starts the first process of a container, and further ones, in a few milliseconds, and keeps whoever starts them out of the
// container's reach.
//
// All that touches a container's files, devices and namespaces is done by a start process: a copy of the zygote (zygote.c), which is this binary, executed
// anew, that never comes to Go's runtime. It is born in the container's cgroups (version 2) or joins them first of all (version 1), so that the container's device
// rules and limits hold for whatever it opens; it has no secrets in its memory but those of its own container; and it is killed by its pidfd when
// the context of the call ends, or after half a minute. So a container may put at its /dev/null, /etc/passwd or /dev/pts/ptmx what it
// likes, be frozen, or have files that hang: the worker opens nothing of it, and waits for nothing without a bound.
//
// The start process makes the mount namespace out of an empty one by descriptors of detached mounts (no path of the host or of the container is
// ever followed twice, and the cost does not grow with the host's mounts), becomes the user, loads the filter, waits at a gate, and
// executes the program. In a PID namespace where others are already it shows up last, when it has the privileges of the container's
// program and no more: who has CAP_SYS_PTRACE in there finds nothing to take over. Two cases are left in which it shows up with its privileges,
// for a moment: a filter that would forbid the birth itself (see letsBeBorn), and, before Linux 6.18, a container that is made in a PID namespace which
// its pod shares, since /proc can only be mounted from inside.
//
// Decisions are made here, in Go, as a plan (plan.go, place.go); the C code carries it out.
//
// What it does is what the OCI runtime specification asks for, as libcontainer does it, and both are held against each other
// by the tests. What it does not do (user namespaces, id-mapped mounts, hooks and more: see Fits) goes to libcontainer.
//
// Needs: Linux 5.12 (mount_setattr), openat2, pidfds. Guarantees: a Start that fails leaves no process, but one that hangs in the kernel, which is
// reaped when it ends; the cgroup and its removal are the caller's.
package spawn
