// Package containerd has our agent on somebody else's runtime: Debian's containerd (1.6, with Debian's runc), which tells no events, rotates no logs and knows
// nothing of us. What works on which runtime: docs/RUNTIMES.md.
//
// Everything is of its own and named apart: a network namespace, containerd's root, state and socket, CNI's configuration, a cgroup.
//
// Debian packages: containerd, runc, containernetworking-plugins, busybox-static.
package containerd
