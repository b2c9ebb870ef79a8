//go:build cgo

// Package engine is what the ways in which containers are made have in common: the interface that each of them has, and what they are built of.
package engine

import (
	"context"
	"encoding/json"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/spawn"
	"monopod.dev/monopod/internal/executor/worker/execution"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/executor/worker/table"
	"monopod.dev/monopod/internal/host/proc"
)

// Engine is a way in which containers are made. There are three: native (package spawn), libcontainer, and the command line of an OCI
// runtime; a container stays with the one that has made it. The worker knows what a container is, and its engine how it is done: what is
// stored, watched, logged and told of containers is the same for all. Nothing is stored by an engine but files beside the record.
//
// None of them touches a container's files, namespaces or devices in this process, nor waits for anything without a bound. The caller of Create,
// Start, Update and Remove has the right to change the container; Exec and Signal may be called at any time, by several at once.
type Engine interface {
	// Create makes a container up to where its first process waits to be let go, as a child of Made's parent. A spawn.ProgramError says that
	// only the program is at fault; the process, if there was one, is gone then. What has been made comes with an error, too, and Remove takes it away.
	Create(ctx context.Context, s Initial) (Made, error)
	// Start lets the first process go, and returns when it has executed its program, or has ended without. An error says that neither is known.
	// It can be repeated, also by a worker that finds the container.
	Start(ctx context.Context, c *table.Container, rec record.Record) (executed bool, err error)
	// Gate is the file that is there as long as the first process may wait to be let go; empty: only Start itself can tell.
	Gate(rec record.Record) string
	// Exec runs a further process to its end, and reaps it. It is killed, with its session, when ctx ends. A spawn.ProgramError says that the
	// program cannot be executed. The descriptors of the call that it has taken are not in the call any more.
	Exec(ctx context.Context, x Further) (code int, at time.Time, err error)
	// Signal sends a signal to the first process, whose pidfd is the caller's. That the process has ended is no error.
	Signal(ctx context.Context, rec record.Record, fd *proc.FD, sig unix.Signal) error
	// Update sets resources. After an error some may be set: the caller takes them back.
	Update(ctx context.Context, rec record.Record, change Change) error
	// Remove takes away what the engine has of a container whose processes have ended. It finds itself done already, or never begun.
	Remove(ctx context.Context, rec record.Record) error
}

// Initial is what a container's first process is started with.
type Initial struct {
	Container *table.Container
	Record    record.Record
	Spec      *specs.Spec
	Seccomp   json.RawMessage // the profile, which the specification is without
	Config    *configs.Config
	Process   *libcontainer.Process
	Cgroups   cgroups.Manager
	Stdin     bool
}

// Made is a first process that waits.
type Made struct {
	PID    int   // 0: there is none
	Parent int   // the process that reaps it
	Ends   *Ends // of its stdio, the caller's to close; nil: none
}

// Further is what a further process is started with.
type Further struct {
	Call      *protocol.Call
	Container *table.Container
	Execution *execution.Execution
	Request   protocol.ExecRequest
}

// Change is an update of a container's resources.
type Change struct {
	Whole     *specs.LinuxResources      // what is to be set
	Values    *cgroups.Resources         // the same, as libcontainer has it
	Hugepages []specs.LinuxHugepageLimit // all of the container's, after it
}

// Engines are the three.
type Engines struct {
	Native       Engine // nil: this kernel lacks what it needs, and libcontainer makes everything
	Libcontainer Engine
	Runtimes     Engine // those that a container names
}

// Choose returns the engine for a container that is to be made, and notes it in the record.
func (e *Engines) Choose(rec *record.Record, config *configs.Config, process *libcontainer.Process) Engine {
	rec.Spawned = rec.Runtime == nil && e.Native != nil && spawn.Fits(config, process) == nil
	return e.Of(*rec)
}

// Of returns the engine that has made a container.
func (e *Engines) Of(rec record.Record) Engine {
	switch {
	case rec.Runtime != nil:
		return e.Runtimes
	case rec.Spawned && e.Native != nil:
		return e.Native
	}
	return e.Libcontainer
}
