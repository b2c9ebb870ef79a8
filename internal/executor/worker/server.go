//go:build cgo

package worker

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
	w       *Worker
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
		return handle(call, func(req protocol.HandoverRequest) (any, error) { return nil, s.w.handover(ctx, call, req) })
	}
	if !s.greeted.Load() {
		return nil, fmt.Errorf("%w: %s before Hello", errdefs.ErrFailedPrecondition, call.Method)
	}
	w := s.w
	switch call.Method {
	case protocol.MethodState, protocol.MethodList, protocol.MethodSubscribe: // an idle node's
	default:
		defer w.tidier.worked()
		if err := w.gate.enter(ctx); err != nil {
			return nil, err
		}
		if isLong(call.Method) {
			w.gate.leave() // it ends with the worker, as all of its kind
		} else {
			defer w.gate.leave()
		}
	}
	switch call.Method {
	case protocol.MethodCreate:
		return handle(call, func(req protocol.CreateRequest) (any, error) {
			if err := errors.Join(checkLog(req), checkRuntime(req)); err != nil {
				return nil, err
			}
			return w.create(ctx, req)
		})
	case protocol.MethodInit:
		return handle(call, func(req protocol.InitRequest) (any, error) { return w.init(ctx, req) })
	case protocol.MethodStart:
		return handle(call, func(req protocol.IDRequest) (any, error) { return w.start(ctx, req.ID) })
	case protocol.MethodKill:
		return handle(call, func(req protocol.KillRequest) (any, error) { return struct{}{}, w.kill(ctx, req) })
	case protocol.MethodDelete:
		return handle(call, func(req protocol.IDRequest) (any, error) { return struct{}{}, w.delete(ctx, req.ID) })
	case protocol.MethodState:
		return handle(call, func(req protocol.IDRequest) (any, error) { return w.state(req.ID) })
	case protocol.MethodList:
		return protocol.ListResponse{Containers: w.states()}, nil
	case protocol.MethodExec:
		return handle(call, func(req protocol.ExecRequest) (any, error) { return w.exec(ctx, call, req) })
	case protocol.MethodUpdate:
		return handle(call, func(req protocol.UpdateRequest) (any, error) { return struct{}{}, w.update(ctx, req) })
	case protocol.MethodAttach:
		return handle(call, func(req protocol.AttachRequest) (any, error) { return struct{}{}, w.attach(ctx, call, req) })
	case protocol.MethodResize:
		return handle(call, func(req protocol.ResizeRequest) (any, error) { return struct{}{}, w.resize(req) })
	case protocol.MethodReopenLog:
		return handle(call, func(req protocol.IDRequest) (any, error) { return struct{}{}, w.reopenLog(req.ID) })
	case protocol.MethodSubscribe:
		return nil, w.hub.subscribe(ctx, w.states, func(ev protocol.Event) error { return call.Note(ev) })
	case protocol.MethodShutdown:
		return handle(call, func(req protocol.ShutdownRequest) (any, error) { return struct{}{}, w.shutdown(ctx, req) })
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
			errdefs.ErrFailedPrecondition, req.MinVersion, req.MaxVersion, s.w.cfg.Build, protocol.MinVersion, protocol.Version)
	}
	s.greeted.Store(true)
	return protocol.HelloResponse{Version: version, Build: s.w.cfg.Build, BootID: s.w.bootID, KeeperPID: s.w.keeperPID, WorkerPID: os.Getpid()}, nil
}

func (w *Worker) state(id string) (protocol.ContainerState, error) {
	c, err := w.existing(id)
	if err != nil {
		return protocol.ContainerState{}, err
	}
	rec := c.snapshot()
	return rec.State(), nil
}
