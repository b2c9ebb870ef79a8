// Package spawn starts the first process of a container, and further ones, in a few milliseconds.
//
// libcontainer starts a container by executing this program anew, twice, with Go's runtime and the seccomp library in the
// container's place. Here the worker itself prepares that place, on an operating system thread of its own which is thrown away
// afterwards: it enters the pod's namespaces, makes the mount namespace out of an empty one by descriptors of detached mounts
// (so that no path of the host or of the container is ever followed twice, and the cost does not grow with the host's
// mounts), and lets a child be born there, which executes the stub: C code of this binary that joins the cgroup, becomes
// the user, loads the filter, waits at a gate, and executes the program. Seccomp filters are compiled once.
//
// What it does is what the OCI runtime specification asks for, as libcontainer does it, and both are held against each other
// by the tests. What it does not do (user namespaces, id-mapped mounts, hooks and more: see Fits) goes to libcontainer.
//
// Needs: Linux 5.12 (mount_setattr), clone3 with pidfds. Guarantees: a Start that fails leaves no process; the cgroup and its
// removal are the caller's.
package spawn
