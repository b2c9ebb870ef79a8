// Package cgroup creates, limits and removes cgroups by their path, the same in every hierarchy of the host: cgroup v1, v2, or
// both beside each other (hybrid).
//
// A path is absolute within each hierarchy ("/monopod/pods/podX"), in cgroupfs syntax. Nothing but the given path, its
// missing parents and (v2) the parents' list of enabled controllers is ever touched.
//
// Processes are not moved here: a container's process is born in its cgroup by the executor.
package cgroup

import (
	"errors"
)

// Mode is the layout of the host's cgroups.
type Mode string

// The modes. In Hybrid mode the controllers are v1 hierarchies, and a v2 hierarchy without controllers stands beside them.
const (
	V1     Mode = "v1"
	Hybrid Mode = "hybrid"
	V2     Mode = "v2"
)

// Host is the layout of the host's cgroups, as found by Detect. It does not change while the host runs; its methods are safe
// for concurrent use.
type Host struct {
	mode        Mode
	hierarchies []hierarchy
}

type hierarchy struct {
	mountpoint  string
	controllers []string // v1: those of this hierarchy, "name=systemd" for a named one
	unified     bool
}

// Detect reads the layout from this process's mounts.
func Detect() (*Host, error) { return nil, errors.New("not yet") }

// Mode tells v1, hybrid or v2.
func (h *Host) Mode() Mode { return h.mode }

// Controllers lists the controllers that limits can be set with, sorted ("cpu", "cpuset", "memory", "pids", ...).
func (h *Host) Controllers() []string { return nil }

// HasController tells whether limits of this controller can be set.
func (h *Host) HasController(name string) bool { return false }

// HasSwapLimit tells whether the kernel counts swap against a cgroup (memory.memsw.* on v1, memory.swap.max on v2).
func (h *Host) HasSwapLimit() bool { return false }

// HugepageSizes lists the page sizes that can be limited, in the kernel's form ("2MB", "1GB"); none without the controller hugetlb.
func (h *Host) HugepageSizes() []string { return nil }

// Paths maps each controller (v1; "name=systemd" too) to the cgroup's directory; the v2 hierarchy has the key "".
func (h *Host) Paths(path string) map[string]string { return nil }

// Create makes the cgroup in every hierarchy, with its missing parents, ready to hold processes and further cgroups. It
// is idempotent; created tells whether any part of the path itself was missing. A Create that fails removes
// what it made.
func (h *Host) Create(path string) (created bool, err error) { return false, errors.New("not yet") }

// Exists tells whether the cgroup is there in at least one hierarchy.
func (h *Host) Exists(path string) (bool, error) { return false, errors.New("not yet") }

// Processes lists the processes in the cgroup and those below it, sorted.
func (h *Host) Processes(path string) ([]int, error) { return nil, errors.New("not yet") }

// Remove removes the cgroup from every hierarchy. It is idempotent. A cgroup with processes or with cgroups below it is
// FailedPrecondition.
func (h *Host) Remove(path string) error { return errors.New("not yet") }

// RemoveTree removes the cgroup and all below it, deepest first. It is idempotent. It waits up to two seconds for processes
// that are dying; those that live on are named in a FailedPrecondition.
func (h *Host) RemoveTree(path string) error { return errors.New("not yet") }

// Resources limit a cgroup as a whole. A nil field is left as it is; the pointers distinguish "no limit" from "as is".
type Resources struct {
	CPUShares   *uint64 // relative, 2 to 262144, as cgroup v1 counts them; v2 gets the corresponding cpu.weight
	CPUQuota    *int64  // microseconds a period; -1: no limit
	CPUPeriod   *uint64 // microseconds
	MemoryLimit *int64  // bytes; -1: no limit
	PidsLimit   *int64  // processes and threads; -1: no limit
}

// Set writes the limits of an existing cgroup. A limit whose controller the host lacks is an error that names it.
func (h *Host) Set(path string, r Resources) error { return errors.New("not yet") }
