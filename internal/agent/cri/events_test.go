package cri

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/test/crifake"
)

// watcher is a Watch of a test.
type watcher struct {
	*testing.T
	pods      chan types.UID
	all, lost chan struct{}
	// said has the messages that it logs.
	said chan string
}

const (
	saysNone   = "the runtime tells no events; its pods are listed instead until it does"
	saysEvents = "the runtime tells what happens by events"
)

// logged hands on what is said at level Info and above.
type logged struct {
	slog.Handler
	said chan string
}

func (l logged) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (l logged) Handle(_ context.Context, r slog.Record) error {
	l.said <- r.Message
	return nil
}

func watch(t *testing.T, rt *crifake.Runtime) (*watcher, *Client) {
	t.Helper()
	w := &watcher{T: t, pods: make(chan types.UID, 1000), all: make(chan struct{}, 1000), lost: make(chan struct{}, 1000), said: make(chan string, 1000)}
	c := connect(t, rt, slog.New(logged{slog.DiscardHandler, w.said}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Watch(ctx, Observers{
			Pod: func(uid types.UID) { w.pods <- uid }, All: func() { w.all <- struct{}{} }, Lost: func() { w.lost <- struct{}{} },
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return w, c
}

// poked waits for a word about the pod of the test, and forgets the others that came with it.
func (w *watcher) poked() {
	w.Helper()
	if uid := await(w.T, w.pods); uid != "u" {
		w.Errorf("a word about %q", uid)
	}
	for len(w.pods) > 0 {
		<-w.pods
	}
}

// TestWatch: events name their pod, and a break of the stream has everything looked at again.
func TestWatch(t *testing.T) {
	t.Parallel()
	_, rt := dial(t)
	w, c := watch(t, rt)
	// CRI does not say when the runtime has begun to record for us, so everything is looked at.
	await(t, w.all)
	_, id := up(t, c)
	w.poked()
	rt.Stop()
	await(t, w.lost)
	for len(w.all) > 0 {
		<-w.all
	}
	rt.Exit(string(id), 0)
	rt.Serve(t)
	await(t, w.all)
}

// TestWatchWithoutEvents: on a runtime that tells nothing, in all the ways in which runtimes do so, it is found by lists what has changed, and of which pod.
// As soon as the runtime tells its events these are gone by.
func TestWatchWithoutEvents(t *testing.T) {
	for name, like := range map[string]crifake.EventStream{
		"missing": crifake.EventsMissing, "over": crifake.EventsOver, "refused": crifake.EventsRefused, "silent": crifake.EventsSilent,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, rt := dial(t)
			rt.Events(like)
			w, c := watch(t, rt)
			await(t, w.all)
			sandbox, id := up(t, c)
			w.poked()
			rt.Exit(string(id), 1)
			w.poked()
			// A list may have shown it before the stream was open, and then nothing was kept back: more happens until it is said.
			for spoken, attempt := false, uint32(4); !spoken; attempt++ {
				select {
				case said := <-w.said:
					if spoken = true; said != saysNone {
						t.Errorf("it says %q", said)
					}
				case <-time.After(time.Second):
					another(t, c, sandbox, attempt)
				}
			}
			rt.KillSandbox(string(sandbox))
			w.poked()
			rt.Events(crifake.EventsTold)
			if like == crifake.EventsMissing {
				// It comes with another version of the runtime.
				rt.Stop()
				await(t, w.lost)
				rt.Serve(t)
			}
			// Nobody tells when the stream is open: pods start and end again and again. A silent stream may have been opened meanwhile, and only what it
			// had to tell shows that it is silent.
			attempt := uint32(1)
			for spoken := false; !spoken; attempt++ {
				sandbox, _ := upAgain(t, c, attempt)
				rt.KillSandbox(string(sandbox))
				select {
				case said := <-w.said:
					if spoken = true; said != saysEvents {
						t.Errorf("it says %q", said)
					}
				case <-w.pods:
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
}

// TestWatchBegins: what happens while the runtime is away, before the agent has seen it at all, is found when it comes.
func TestWatchBegins(t *testing.T) {
	t.Parallel()
	other, rt := dial(t)
	_, id := up(t, other)
	rt.Stop()
	w, _ := watch(t, rt)
	await(t, w.lost)
	rt.Exit(string(id), 3)
	rt.Serve(t)
	await(t, w.all)
	rt.KillSandbox(rt.Sandboxes()[0])
	w.poked()
}
