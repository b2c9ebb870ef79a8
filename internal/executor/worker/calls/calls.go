//go:build cgo

// Package calls serves the calls of the executor's protocol, a file a call.
package calls

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/stdio"
	"monopod.dev/monopod/internal/executor/worker/bundle"
	"monopod.dev/monopod/internal/executor/worker/engine"
	"monopod.dev/monopod/internal/executor/worker/group"
	"monopod.dev/monopod/internal/executor/worker/life"
	"monopod.dev/monopod/internal/executor/worker/table"
)

// Calls serves the calls of the protocol.
type Calls struct {
	cfg    Config
	roots  group.Roots
	gate   gate
	tidier tidier
}

// Config is what it needs.
type Config struct {
	Ctx       context.Context // ends with the worker
	Build     string          // this program's version
	BootID    string
	KeeperPID int
	Table     *table.Table
	Life      *life.Life
	Engines   engine.Engines
	Specs     *bundle.Reader
	Hugepages group.Hugepages
	// Handover serves the call of that name. It returns only when the executor stays what it is.
	Handover func(ctx context.Context, call *protocol.Call, req protocol.HandoverRequest) error
	// Shutdown tells the keeper that this worker is about to end for good, and that it is to end after it.
	Shutdown func(ctx context.Context) error
	// End ends the worker.
	End func()
	Log *slog.Logger
}

// New returns Calls. Close ends what it begins.
func New(cfg Config) *Calls { return &Calls{cfg: cfg, tidier: newTidier()} }

// Close ends what New has begun.
func (cs *Calls) Close() { cs.tidier.stop() }

// Serve serves one connection, until ctx or the connection ends.
func (cs *Calls) Serve(ctx context.Context, c *net.UnixConn) {
	s := &server{cs: cs}
	protocol.NewConn(ctx, c, protocol.ConnConfig{Serve: s.serve, Long: isLong, Log: cs.cfg.Log})
}

// stopPatience bounds how long calls that are under way, and output that is being written, may hold up a handover.
const stopPatience = 10 * time.Second

// Stop stops all that changes something, for a handover; goOn ends that. After an error nothing is stopped.
func (cs *Calls) Stop(ctx context.Context) (goOn func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	if err := cs.gate.shut(ctx); err != nil {
		return nil, err
	}
	var ios []*stdio.Stdio
	for _, c := range cs.cfg.Table.All() {
		if io := c.Stdio(); io != nil {
			ios = append(ios, io)
		}
	}
	goOn = func() {
		for _, io := range ios {
			io.Thaw()
		}
		cs.gate.open()
	}
	errs := make([]error, len(ios))
	var wg sync.WaitGroup
	for i, io := range ios {
		wg.Go(func() { errs[i] = io.Freeze(ctx) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		goOn()
		return nil, err
	}
	return goOn, nil
}
