package cri

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/agent/relist"
	"monopod.dev/monopod/internal/kit/coalesce"
)

// Observers are told what to look at again. The functions must not block.
type Observers struct {
	// Pod: something of this pod has changed.
	Pod func(uid types.UID)
	// All: anything may have changed.
	All func()
	// Lost: the runtime has stopped talking to us.
	Lost func()
}

// Watch follows what happens in the runtime until ctx ends: by its events, and by lists where it tells none (package relist). Both only say where to look:
// they may be late, doubled or lost. Of one client there is one Watch at a time.
func (c *Client) Watch(ctx context.Context, obs Observers) {
	ctx, cancel := context.WithCancel(ctx)
	w := &watching{
		client: c, obs: obs, pace: relist.New(time.Now()), steps: make(chan func()), first: true,
	}
	w.run(ctx)
	cancel()
	w.wg.Wait()
}

// watching is one Watch. What follows steps is of Watch's goroutine.
type watching struct {
	client *Client
	obs    Observers
	wg     sync.WaitGroup
	// steps are what the goroutines of streams and lists have to tell.
	steps chan func()

	pace *relist.Pace
	// stream is the one that is open or being opened; nil: none.
	stream *stream
	// last is what the last list has shown, over the connection of that number.
	last       relist.List
	connection int64
	// first: nothing was looked at yet, or the runtime was away since. lost: it has been said that it is.
	first, lost bool
	// silent: it has been said that there are no events.
	silent bool
}

// stream is one stream of events.
type stream struct{ close context.CancelFunc }

func (w *watching) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	next := w.pace.Next()
	for {
		now := time.Now()
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			// Its end was moved a little, to when others end.
			if now = time.Now(); now.Before(next) {
				now = next
			}
		case step := <-w.steps:
			step()
			now = time.Now()
		case began := <-w.client.started:
			w.pace.Made(began)
		}
		w.act(ctx, now)
		if next = w.pace.Next(); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(coalesce.Align(max(time.Until(next), 0)))
		}
	}
}

// act does what is due.
func (w *watching) act(ctx context.Context, now time.Time) {
	due := w.pace.Due(now)
	if due.Close {
		w.close()
		w.noEvents("the runtime's stream of events does not tell what happens")
	}
	if due.Open {
		streamCtx, cancel := context.WithCancel(ctx)
		s := &stream{close: cancel}
		w.stream = s
		w.wg.Go(func() {
			err := w.follow(streamCtx, s)
			w.tell(ctx, func() { w.ended(s, err) })
		})
	}
	if due.List {
		w.wg.Go(func() {
			list, err := w.client.list(ctx)
			w.tell(ctx, func() { w.listed(list, err) })
		})
	}
}

// tell has a step done by Watch's goroutine.
func (w *watching) tell(ctx context.Context, step func()) {
	select {
	case w.steps <- step:
	case <-ctx.Done():
	}
}

func (w *watching) close() {
	if w.stream != nil {
		w.stream.close()
		w.stream = nil
	}
}

// follow reads a stream until it ends.
func (w *watching) follow(ctx context.Context, s *stream) error {
	defer s.close()
	events, err := w.client.GetContainerEvents(ctx, &cri.GetEventsRequest{})
	if err != nil {
		return err
	}
	w.tell(ctx, func() {
		if s == w.stream {
			w.pace.Opened(time.Now())
		}
	})
	for {
		e, err := events.Recv()
		if err != nil {
			return err
		}
		uid := podOf(e)
		w.tell(ctx, func() { w.event(s, uid) })
	}
}

func (w *watching) event(s *stream, uid types.UID) {
	if uid == "" {
		w.obs.All()
	} else {
		w.obs.Pod(uid)
	}
	if s != w.stream {
		return
	}
	w.pace.Told(time.Now(), uid)
	if w.silent {
		w.silent = false
		w.client.log.Info("the runtime tells what happens by events")
	}
}

func (w *watching) ended(s *stream, err error) {
	if s != w.stream {
		return
	}
	w.close()
	end := relist.Over
	switch status.Code(err) {
	case codes.Unimplemented:
		end = relist.Missing
		w.noEvents("the runtime has no stream of events")
	case codes.Unavailable:
		end = relist.Broken
		w.gone()
	default:
		w.noEvents("the runtime's stream of events ended")
	}
	w.client.log.Debug("the runtime's stream of events ended and is opened again", "error", err)
	w.pace.Ended(time.Now(), end)
}

// noEvents says once that it goes without events.
func (w *watching) noEvents(why string) {
	if !w.silent {
		w.silent = true
		w.client.log.Warn("the runtime tells no events; its pods are listed instead until it does", "why", why, "every", relist.Every)
	}
}

// gone says once that the runtime is away.
func (w *watching) gone() {
	w.first = true
	if !w.lost {
		w.lost = true
		w.obs.Lost()
	}
}

// listed takes what a list has shown.
func (w *watching) listed(list relist.List, err error) {
	now := time.Now()
	if made := w.client.connections.made.Load(); made != w.connection {
		if w.connection != 0 {
			w.pace.Reconnected(now)
		}
		w.connection, w.first = made, true
	}
	if err != nil {
		w.client.log.Debug("the runtime's pods can't be listed", "error", err)
		w.pace.ListFailed(now)
		w.gone()
		return
	}
	changed, telling := relist.Diff(w.last, list)
	if w.last == nil {
		telling = nil
	}
	w.last, w.lost = list, false
	w.pace.Listed(now, telling)
	if w.first || w.pace.Mode() == relist.Events {
		w.first = false
		w.obs.All()
		return
	}
	for _, uid := range changed {
		w.obs.Pod(uid)
	}
}

// podOf is the UID of the pod that an event is about; empty where the event does not tell.
func podOf(e *cri.ContainerEventResponse) types.UID {
	if uid := e.GetPodSandboxStatus().GetMetadata().GetUid(); uid != "" {
		return types.UID(uid)
	}
	for _, c := range e.GetContainersStatuses() {
		if ref, ok := podspec.RefOf(c.Labels); ok {
			return ref.UID
		}
	}
	return ""
}

// list lists all sandboxes and containers of pods. It does not wait for a runtime that is away: that is what it is to find out.
func (c *Client) list(ctx context.Context) (relist.List, error) {
	ctx, cancel := context.WithTimeout(ctx, QueryTimeout)
	defer cancel()
	sandboxes, err := c.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{}, grpc.WaitForReady(false))
	if err != nil {
		return nil, err
	}
	containers, err := c.ListContainers(ctx, &cri.ListContainersRequest{}, grpc.WaitForReady(false))
	if err != nil {
		return nil, err
	}
	list := make(relist.List, len(sandboxes.Items)+len(containers.Containers))
	for _, s := range sandboxes.Items {
		if ref, ok := podspec.RefOf(s.Labels); ok {
			list[s.Id] = relist.Item{UID: ref.UID, State: int32(s.State)}
		}
	}
	for _, o := range containers.Containers {
		if ref, ok := podspec.RefOf(o.Labels); ok {
			telling := o.State == cri.ContainerState_CONTAINER_RUNNING || o.State == cri.ContainerState_CONTAINER_EXITED
			list[o.Id] = relist.Item{UID: ref.UID, State: int32(o.State), Telling: telling}
		}
	}
	return list, nil
}

// noteStart is called for every call: of the start of a container an event has to tell.
func (c *Client) noteStart(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	began := time.Now()
	err := invoke(ctx, method, req, reply, conn, opts...)
	if err == nil && method == cri.RuntimeService_StartContainer_FullMethodName {
		select {
		case c.started <- began:
		default: // an earlier one has not been looked at yet
		}
	}
	return err
}
