// Package machine runs a command in a virtual machine: Debian's kernel for clouds, pure cgroup v2, software emulation
// (no KVM), a root disk made for the occasion. See ../README.md.
//
// It guarantees that the machine is gone when Run returns, and that a machine that does not come up, hangs or panics is
// an error that shows the end of its console.
package machine
