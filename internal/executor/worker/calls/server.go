//go:build cgo

package calls

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
)

// server serves one connection.
type server struct {
	cs      *Calls
	greeted atomic.Bool
}

// row is a call that is served after Hello.
type row struct {
	serve func(ctx context.Context, cs *Calls, call *protocol.Call) (any, error)
	long  bool // it lasts as long as the processes that it is about, or the caller's interest, and ends with the worker
	looks bool // it changes nothing: a handover need not wait for it, and an idle node has it
}

// rows are the calls, by method. Their requests are described in package protocol.
var rows = map[string]row{
	protocol.MethodCreate: {serve: of(func(ctx context.Context, cs *Calls, _ *protocol.Call, req protocol.CreateRequest) (any, error) {
		return cs.create(ctx, req)
	})},
	protocol.MethodInit: {serve: of(func(ctx context.Context, cs *Calls, _ *protocol.Call, req protocol.InitRequest) (any, error) {
		return cs.init(ctx, req)
	})},
	protocol.MethodStart: {serve: of(func(ctx context.Context, cs *Calls, _ *protocol.Call, req protocol.IDRequest) (any, error) {
		return cs.start(ctx, req.ID)
	})},
	protocol.MethodUpdate: {serve: done(func(ctx context.Context, cs *Calls, req protocol.UpdateRequest) error { return cs.update(ctx, req) })},
	protocol.MethodKill:   {serve: done(func(ctx context.Context, cs *Calls, req protocol.KillRequest) error { return cs.kill(ctx, req) })},
	protocol.MethodDelete: {serve: done(func(ctx context.Context, cs *Calls, req protocol.IDRequest) error { return cs.delete(ctx, req.ID) })},

	protocol.MethodExec: {long: true, serve: of(func(ctx context.Context, cs *Calls, call *protocol.Call, req protocol.ExecRequest) (any, error) {
		return cs.exec(ctx, call, req)
	})},
	protocol.MethodAttach: {long: true, serve: of(func(ctx context.Context, cs *Calls, call *protocol.Call, req protocol.AttachRequest) (any, error) {
		return struct{}{}, cs.attach(ctx, call, req)
	})},
	protocol.MethodResize:    {serve: done(func(_ context.Context, cs *Calls, req protocol.ResizeRequest) error { return cs.resize(req) })},
	protocol.MethodReopenLog: {serve: done(func(_ context.Context, cs *Calls, req protocol.IDRequest) error { return cs.reopenLog(req.ID) })},

	protocol.MethodState: {looks: true, serve: of(func(_ context.Context, cs *Calls, _ *protocol.Call, req protocol.IDRequest) (any, error) {
		return cs.state(req.ID)
	})},
	protocol.MethodList: {looks: true, serve: func(_ context.Context, cs *Calls, _ *protocol.Call) (any, error) {
		return protocol.ListResponse{Containers: cs.cfg.Table.States()}, nil
	}},
	protocol.MethodSubscribe: {looks: true, long: true, serve: func(ctx context.Context, cs *Calls, call *protocol.Call) (any, error) {
		return nil, cs.cfg.Table.Subscribe(ctx, func(ev protocol.Event) error { return call.Note(ev) })
	}},
	protocol.MethodShutdown: {serve: done(func(ctx context.Context, cs *Calls, req protocol.ShutdownRequest) error { return cs.shutdown(ctx, req) })},
}

// of decodes a call's request and answers it.
func of[R any](f func(ctx context.Context, cs *Calls, call *protocol.Call, req R) (any, error)) func(context.Context, *Calls, *protocol.Call) (any, error) {
	return func(ctx context.Context, cs *Calls, call *protocol.Call) (any, error) {
		return handle(call, func(req R) (any, error) { return f(ctx, cs, call, req) })
	}
}

// done is of for a call that has nothing to answer but that it is done.
func done[R any](f func(ctx context.Context, cs *Calls, req R) error) func(context.Context, *Calls, *protocol.Call) (any, error) {
	return of(func(ctx context.Context, cs *Calls, _ *protocol.Call, req R) (any, error) {
		return struct{}{}, f(ctx, cs, req)
	})
}

func isLong(method string) bool { return rows[method].long }

// serve answers a call.
func (s *server) serve(ctx context.Context, call *protocol.Call) (any, error) {
	if call.Method == protocol.MethodHello {
		return handle(call, func(req protocol.HelloRequest) (any, error) { return s.hello(req) })
	}
	if call.Method == protocol.MethodHandover { // also of a caller with whom there is nothing else to speak
		return handle(call, func(req protocol.HandoverRequest) (any, error) { return nil, s.cs.cfg.Handover(ctx, call, req) })
	}
	if !s.greeted.Load() {
		return nil, fmt.Errorf("%w: %s before Hello", errdefs.ErrFailedPrecondition, call.Method)
	}
	r, ok := rows[call.Method]
	if !ok {
		return nil, fmt.Errorf("%w: executor method %q", errdefs.ErrNotImplemented, call.Method)
	}
	if r.looks {
		return r.serve(ctx, s.cs, call)
	}
	defer s.cs.tidier.worked()
	if err := s.cs.gate.enter(ctx); err != nil {
		return nil, err
	}
	if r.long {
		s.cs.gate.leave() // it ends with the worker, as all of its kind
	} else {
		defer s.cs.gate.leave()
	}
	return r.serve(ctx, s.cs, call)
}

// handle decodes a call's request and answers it.
func handle[R any](call *protocol.Call, f func(R) (any, error)) (any, error) {
	var req R
	if err := call.Decode(&req); err != nil {
		return nil, err
	}
	return f(req)
}

// hello agrees on a version.
func (s *server) hello(req protocol.HelloRequest) (protocol.HelloResponse, error) {
	if err := failpoint.Hit("executor/worker/hello"); err != nil {
		return protocol.HelloResponse{}, err
	}
	version := min(protocol.Version, req.MaxVersion)
	if version < max(protocol.MinVersion, req.MinVersion) {
		return protocol.HelloResponse{}, fmt.Errorf("%w: the caller speaks protocol versions %d to %d, this executor (%s) %d to %d: upgrade the older one",
			errdefs.ErrFailedPrecondition, req.MinVersion, req.MaxVersion, s.cs.cfg.Build, protocol.MinVersion, protocol.Version)
	}
	s.greeted.Store(true)
	return protocol.HelloResponse{Version: version, Build: s.cs.cfg.Build, BootID: s.cs.cfg.BootID, KeeperPID: s.cs.cfg.KeeperPID, WorkerPID: os.Getpid()}, nil
}

func (cs *Calls) state(id ids.ContainerID) (protocol.ContainerState, error) {
	c, err := cs.cfg.Table.Existing(id)
	if err != nil {
		return protocol.ContainerState{}, err
	}
	rec := c.Record()
	return rec.State(), nil
}
