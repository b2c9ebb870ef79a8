// Package podman tests that CDI specs of ours mean to another runtime, Debian's podman, what they mean to Monopod. Podman is taken from its
// package and not installed.
package podman
