//go:build cgo

package calls

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// server serves one connection.
type server struct {
	cs      *Calls
	greeted atomic.Bool
}

// isLong tells the calls that last as long as the processes they are about.
func isLong(method string) bool {
	return method == protocol.MethodExec || method == protocol.MethodAttach || method == protocol.MethodSubscribe
}

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
	cs := s.cs
	switch call.Method {
	case protocol.MethodState, protocol.MethodList, protocol.MethodSubscribe: // an idle node's
	default:
		defer cs.tidier.worked()
		if err := cs.gate.enter(ctx); err != nil {
			return nil, err
		}
		if isLong(call.Method) {
			cs.gate.leave() // it ends with the worker, as all of its kind
		} else {
			defer cs.gate.leave()
		}
	}
	switch call.Method {
	case protocol.MethodCreate:
		return handle(call, func(req protocol.CreateRequest) (any, error) {
			if err := errors.Join(checkLog(req), checkRuntime(req)); err != nil {
				return nil, err
			}
			return cs.create(ctx, req)
		})
	case protocol.MethodInit:
		return handle(call, func(req protocol.InitRequest) (any, error) { return cs.init(ctx, req) })
	case protocol.MethodStart:
		return handle(call, func(req protocol.IDRequest) (any, error) { return cs.start(ctx, req.ID) })
	case protocol.MethodKill:
		return handle(call, func(req protocol.KillRequest) (any, error) { return struct{}{}, cs.kill(ctx, req) })
	case protocol.MethodDelete:
		return handle(call, func(req protocol.IDRequest) (any, error) { return struct{}{}, cs.delete(ctx, req.ID) })
	case protocol.MethodState:
		return handle(call, func(req protocol.IDRequest) (any, error) { return cs.state(req.ID) })
	case protocol.MethodList:
		return protocol.ListResponse{Containers: cs.cfg.Table.States()}, nil
	case protocol.MethodExec:
		return handle(call, func(req protocol.ExecRequest) (any, error) { return cs.exec(ctx, call, req) })
	case protocol.MethodUpdate:
		return handle(call, func(req protocol.UpdateRequest) (any, error) { return struct{}{}, cs.update(ctx, req) })
	case protocol.MethodAttach:
		return handle(call, func(req protocol.AttachRequest) (any, error) { return struct{}{}, cs.attach(ctx, call, req) })
	case protocol.MethodResize:
		return handle(call, func(req protocol.ResizeRequest) (any, error) { return struct{}{}, cs.resize(req) })
	case protocol.MethodReopenLog:
		return handle(call, func(req protocol.IDRequest) (any, error) { return struct{}{}, cs.reopenLog(req.ID) })
	case protocol.MethodSubscribe:
		return nil, cs.cfg.Table.Subscribe(ctx, func(ev protocol.Event) error { return call.Note(ev) })
	case protocol.MethodShutdown:
		return handle(call, func(req protocol.ShutdownRequest) (any, error) { return struct{}{}, cs.shutdown(ctx, req) })
	}
	return nil, fmt.Errorf("%w: executor method %q", errdefs.ErrNotImplemented, call.Method)
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

func (cs *Calls) state(id string) (protocol.ContainerState, error) {
	c, err := cs.cfg.Table.Existing(id)
	if err != nil {
		return protocol.ContainerState{}, err
	}
	rec := c.Record()
	return rec.State(), nil
}
