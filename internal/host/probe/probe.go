// Package probe finds out whether this host has what a node needs, before anything is started: it is behind `monopod
// check` and behind the refusals of `monopod up`.
//
// Where a feature can be tried, it is tried, not looked up: an overlay is mounted, a bridge and a veth pair are made, a
// masquerading rule is loaded. What is tried is tried in namespaces that end with the call, so that nothing is left on
// the host, not even by a kill in the middle; the exceptions are an empty directory beside the data directory, and an
// empty cgroup, both removed at once and named monopod-check-*.
//
// Checks do not depend on each other: each says its own part, and all are always run.
package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"monopod.dev/monopod/internal/host/kernel"
)

// Status is the outcome of one check.
type Status string

// The outcomes. A node runs with Warn, but something that a pod may ask for is missing; it does not start with Fail.
const (
	OK   Status = "OK"
	Warn Status = "Warn"
	Fail Status = "Fail"
)

// Result is what one check found.
type Result struct {
	// Name of the check, the same in every version.
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Found is what is there.
	Found string `json:"found"`
	// Remedy is what to do about it, or what goes without it; empty when Status is OK.
	Remedy string `json:"remedy,omitempty"`
}

// Config says what the node that is to start will use.
type Config struct {
	// Containers asks for all that running containers needs, on top of the places below: the role runtime does.
	Containers bool
	// Agent asks for what an agent needs whose containers a runtime of somebody else's runs. Containers asks for all of it and more.
	Agent bool
	// DataDir is where image layers will be: overlay and free space are looked at there.
	DataDir string
	// CgroupRoot is the cgroup under which the node's will be, in cgroupfs syntax.
	CgroupRoot string
	// Dirs are the directories to write in. Those that are missing will be made.
	Dirs []Place
	// Files are the files to read.
	Files []Place
	// Ports are the TCP ports to listen at; port 0 is always free.
	Ports []Port
	// Sockets are the unix sockets to listen at.
	Sockets []Socket
}

// Place is a directory or a file.
type Place struct {
	Name string // for people: "data"
	Path string
	Flag string // how to choose another one: "--data-dir"
}

// Port is a TCP port to listen at.
type Port struct {
	Name    string // "api"
	Address string // an IP address; empty: all
	Port    int
	Flag    string // "--api-port"
}

// Socket is a unix socket to listen at, or to ask at.
type Socket struct {
	Name string // "cri"
	Path string
	Flag string // "--cri-socket"
	// Shared: a server may be there already, and will be used (the executor outlives the node).
	Shared bool
	// Asked: a server of somebody else's is asked there. It may come later.
	Asked bool
}

// Run runs all checks that the configuration asks for, in a fixed order, and returns a result for each. It takes some
// tens of milliseconds. When ctx ends, the checks that have not begun are left out.
func Run(ctx context.Context, cfg Config) []Result {
	return run(ctx, cfg, hostSystem())
}

// system is the host as the checks see it. Tests replace parts of it.
type system struct {
	proc    string // /proc
	cgroup  string // /sys/fs/cgroup
	euid    func() int
	release func() (string, error) // uname -r
	clone   func(flags uintptr) error
}

func hostSystem() system {
	return system{proc: "/proc", cgroup: "/sys/fs/cgroup", euid: os.Geteuid, release: kernel.Release, clone: tryClone}
}

func run(ctx context.Context, cfg Config, sys system) []Result {
	var checks []func() Result
	if cfg.Agent && !cfg.Containers {
		checks = append(checks, sys.root, sys.kernel, func() Result { return sys.capabilities(agentCapabilities) })
	}
	if cfg.Containers {
		checks = append(checks, sys.root, sys.kernel, func() Result { return sys.capabilities(knownCapabilities) })
		for _, ns := range namespaces {
			checks = append(checks, func() Result { return sys.namespace(ns) })
		}
		checks = append(checks,
			func() Result { return sys.cgroups(cfg.CgroupRoot) },
			func() Result { return overlay(cfg.DataDir) },
			links, firewall, sys.forwarding, sys.ipv6, seccomp, pidfd)
	}
	checks = append(checks, sys.inotify, func() Result { return space(cfg.DataDir) })
	for _, d := range cfg.Dirs {
		checks = append(checks, func() Result { return writable(d) })
	}
	for _, f := range cfg.Files {
		checks = append(checks, func() Result { return readable(f) })
	}
	for _, s := range cfg.Sockets {
		checks = append(checks, func() Result { return socket(s) })
	}
	for _, p := range cfg.Ports {
		checks = append(checks, func() Result { return sys.port(p) })
	}
	var results []Result
	for _, check := range checks {
		if ctx.Err() != nil {
			break
		}
		results = append(results, check())
	}
	return results
}

// Err returns nil when no check failed, and else an error that has one line for each that did.
func Err(results []Result) error {
	var errs []error
	for _, r := range results {
		if r.Status == Fail {
			errs = append(errs, fmt.Errorf("%s: %s; %s", r.Name, r.Found, r.Remedy))
		}
	}
	return errors.Join(errs...)
}

// Worst returns the gravest status among the results.
func Worst(results []Result) Status {
	for _, s := range []Status{Fail, Warn} {
		if slices.ContainsFunc(results, func(r Result) bool { return r.Status == s }) {
			return s
		}
	}
	return OK
}

func ok(name, format string, args ...any) Result {
	return Result{Name: name, Status: OK, Found: fmt.Sprintf(format, args...)}
}

// found begins a result that is not OK; warn and fail end it with the remedy.
type found struct{ name, text string }

func bad(name, format string, args ...any) found { return found{name, fmt.Sprintf(format, args...)} }

func (f found) warn(remedy string, args ...any) Result {
	return Result{Name: f.name, Status: Warn, Found: f.text, Remedy: fmt.Sprintf(remedy, args...)}
}

func (f found) fail(remedy string, args ...any) Result {
	return Result{Name: f.name, Status: Fail, Found: f.text, Remedy: fmt.Sprintf(remedy, args...)}
}
