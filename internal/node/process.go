package node

import (
	"context"
	"os"
	"path/filepath"

	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/podstarts"
	"monopod.dev/monopod/internal/network/podnet"
	"monopod.dev/monopod/internal/state"
)

// process is what the roles of one process share.
type process struct {
	Options
	// networks are those of the node's pods.
	networks podnet.Networks
	// withAPI: the API server of the node is one of this process.
	withAPI bool
	// garbageRoom is how much garbage the process may make between two collections (proc.Tidy).
	garbageRoom uint64
	// timeline remembers how pods' starts go; each role of the process notes its part. nil: nobody does.
	timeline *podstarts.Recorder
	// settled is closed when the node is ready for work.
	settled chan struct{}
}

func newProcess(o Options) *process {
	return &process{Options: o, networks: networksOf(o.Config), settled: make(chan struct{})}
}

// tellReady is called once, by the role for which the others wait.
func (p *process) tellReady(ctx context.Context) {
	close(p.settled)
	if p.OnReady != nil {
		p.OnReady()
	}
	if err := proc.Slim(); err != nil {
		p.Log.Debug("memory of the start is kept", "error", err)
	}
	room := p.garbageRoom
	if os.Getenv("GOGC") != "" { // who runs the node knows better
		room = 0
	}
	go proc.Tidy(ctx, room)
}

// readyWith is the role that says that the node is ready when another one is.
func (p *process) readyWith(ready func() <-chan struct{}) role {
	return role{name: "ready", run: func(ctx context.Context) error {
		if await(ctx, ready()) {
			p.tellReady(ctx)
		}
		return idle(ctx)
	}}
}

// openState opens one state file; a damaged one is set aside and said so.
func (p *process) openState(name string) (*state.DB, error) {
	path := filepath.Join(p.Config.DataDir, "state", name)
	db, damaged, err := state.Open(state.Config{Path: path, SetAside: true})
	if err != nil {
		return nil, err
	}
	if damaged != "" {
		p.Log.Error("the state file was damaged; it was set aside and a new one begun", "file", path, "kept", damaged)
	}
	return db, nil
}

// await waits for ready to be closed; false means that ctx ended first.
func await(ctx context.Context, ready <-chan struct{}) bool {
	select {
	case <-ready:
		return true
	case <-ctx.Done():
		return false
	}
}
