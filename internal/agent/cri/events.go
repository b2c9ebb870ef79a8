package cri

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/podspec"
)

const (
	// relistEvery is the net below the stream of events.
	relistEvery = time.Minute
	// relistBlind is how often runtimes without a stream of events are looked at.
	relistBlind = 2 * time.Second
	// settleAfter is when everything is looked at once more after the stream was opened: CRI does not tell when the
	// runtime has begun to record events for us.
	settleAfter = time.Second
	reopenFirst = 100 * time.Millisecond
	reopenMax   = 5 * time.Second
)

// Observers are told what to look at again. The functions must not block.
type Observers struct {
	// Pod: something of this pod has changed.
	Pod func(uid string)
	// All: anything may have changed.
	All func()
	// Lost: the runtime has stopped talking to us.
	Lost func()
}

// Watch follows the runtime's events until ctx ends. Events only say where to look: they may be late, doubled or lost.
func (c *Client) Watch(ctx context.Context, obs Observers) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	relist := time.NewTicker(relistEvery)
	defer relist.Stop()
	broken := make(chan error, 1)
	var retry, settle <-chan time.Time
	delay, blind := reopenFirst, false
	open := func() {
		settle = time.After(settleAfter)
		go func() { broken <- c.stream(ctx, obs) }()
	}
	open()
	for {
		select {
		case <-ctx.Done():
			if retry == nil {
				<-broken
			}
			return
		case <-relist.C:
			obs.All()
		case <-settle:
			delay, settle = reopenFirst, nil
			obs.All()
		case err := <-broken:
			if ctx.Err() != nil {
				return
			}
			settle = nil
			obs.Lost()
			if status.Code(err) == codes.Unimplemented {
				if !blind {
					c.log.Warn("the runtime has no stream of events; its pods are looked at regularly instead", "every", relistBlind)
				}
				blind, retry = true, time.After(relistBlind)
				continue
			}
			c.log.Debug("the runtime's stream of events ended and is opened again", "error", err, "in", delay)
			retry, delay = time.After(delay), min(2*delay, reopenMax)
		case <-retry:
			retry = nil
			obs.All()
			open()
		}
	}
}

func (c *Client) stream(ctx context.Context, obs Observers) error {
	events, err := c.GetContainerEvents(ctx, &cri.GetEventsRequest{})
	if err != nil {
		return err
	}
	for {
		e, err := events.Recv()
		if err != nil {
			return err
		}
		if uid := podOf(e); uid != "" {
			obs.Pod(uid)
		} else {
			obs.All()
		}
	}
}

// podOf is the UID of the pod that an event is about; empty where the event does not tell.
func podOf(e *cri.ContainerEventResponse) string {
	if uid := e.GetPodSandboxStatus().GetMetadata().GetUid(); uid != "" {
		return uid
	}
	for _, c := range e.GetContainersStatuses() {
		if ref, ok := podspec.RefOf(c.Labels); ok {
			return ref.UID
		}
	}
	return ""
}
