//go:build cgo

package worker

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
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/host/proc"
)

// starter is a way in which containers are made. There are three: native (package spawn), libcontainer, and the command line of an OCI
// runtime; a container stays with the one that has made it. The worker knows what a container is, and its starter how it is done: what is
// stored, watched, logged and told of containers is the same for all.
//
// None of them touches a container's files, namespaces or devices in this process, nor waits for anything without a bound.
type starter interface {
	// create makes a container up to where its first process waits to be let go, and fills in the record's PID. A spawn.ProgramError says that
	// only the program is at fault; the process, if there was one, is gone then. The ends come with an error, too.
	create(ctx context.Context, s initStart) (*ends, error)
	// start lets the first process go, and returns when it has executed its program, or has ended without.
	start(ctx context.Context, c *container, rec record.Record) (executed bool, err error)
	// waits reports whether the first process may not have been let go yet, though its Start was recorded; released takes away the sign of it.
	waits(rec record.Record) bool
	released(rec record.Record)
	// exec runs a further process to its end.
	exec(ctx context.Context, x execStart) (code int, at time.Time, err error)
	// signal sends a signal to the first process.
	signal(ctx context.Context, rec record.Record, fd *proc.FD, sig unix.Signal) error
	// update sets resources: change is what is to be set.
	update(ctx context.Context, rec record.Record, change resourceChange) error
	// remove takes away what the starter has of a container whose processes have ended. It finds itself done already, or never begun.
	remove(ctx context.Context, rec record.Record) error
	// parent is the process that reaps the first one, as it is created.
	parent() int
}

var (
	_ starter = (*native)(nil)
	_ starter = (*commands)(nil)
	_ starter = (*libcontainers)(nil)
)

// initStart is what a container's first process is started with.
type initStart struct {
	c       *container
	rec     *record.Record // its PID is filled in
	spec    *specs.Spec
	seccomp json.RawMessage // the profile, which the specification is without
	config  *configs.Config
	process *libcontainer.Process
	cgroups cgroups.Manager
	stdin   bool
}

// execStart is what a further process is started with.
type execStart struct {
	call *protocol.Call
	c    *container
	x    *execution
	req  protocol.ExecRequest
}

// resourceChange is an update of a container's resources.
type resourceChange struct {
	whole     *specs.LinuxResources // what is to be set
	values    *cgroups.Resources    // the same, as libcontainer has it
	hugepages []specs.LinuxHugepageLimit
}

// starters are the three.
type starters struct {
	native       *native // nil: this kernel lacks what it needs, and libcontainer makes everything
	libcontainer *libcontainers
	commands     *commands
}

// choose returns the starter for a container that is to be made, and notes it in the record.
func (s *starters) choose(rec *record.Record, config *configs.Config, process *libcontainer.Process) starter {
	rec.Spawned = rec.Runtime == nil && s.native != nil && spawn.Fits(config, process) == nil
	return s.of(*rec)
}

// of returns the starter that has made a container.
func (s *starters) of(rec record.Record) starter {
	switch {
	case rec.Runtime != nil:
		return s.commands
	case rec.Spawned && s.native != nil:
		return s.native
	}
	return s.libcontainer
}
