package store

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// Events are as old as they are, unless they come so fast, or are so large, that a window's worth of them is too much to keep. Time never goes back.
func TestEventsAge(t *testing.T) {
	const window = 80 * time.Second
	begin := time.Now()
	a := &ager{window: window}
	for _, c := range []struct {
		what       string
		after      time.Duration
		size       int
		from, want time.Duration
	}{
		{"the first one", 0, 1000, 0, 0},
		{"one in its time", time.Second, 1000, 0, time.Second},
		{"one right after it", time.Second, 1000, time.Second, window / historyEvents},
		{"another", time.Second, 0, time.Second, 2 * window / historyEvents},
		{"a large one", time.Second, historyBytes / 4, time.Second, 2*window/historyEvents + window/4},
		{"a huge one", time.Second, 10 * historyBytes, time.Second, 2*window/historyEvents + window/4 + window},
		{"later, when the clock has caught up", 3 * window, 1000, 3 * window, 0},
	} {
		if got, want := a.stamp(begin.Add(c.after), c.size).Sub(begin), c.from+c.want; got != want {
			t.Errorf("%s is told to be at %v, want %v", c.what, got, want)
		}
	}
}

type given struct{ events chan watch.Event }

func (g given) ResultChan() <-chan watch.Event { return g.events }
func (given) Stop()                            {}

// Of a watch that can begin no event is taken.
func TestFailedWatches(t *testing.T) {
	for _, c := range []struct {
		name       string
		room, sent int
		want       bool
	}{
		{"it could not begin", 1, 1, true},
		{"it has an event", 10, 1, false},
		{"it has none yet", 10, 0, false},
		{"it was closed at once", 0, 0, false},
	} {
		events := make(chan watch.Event, c.room)
		for range c.sent {
			events <- watch.Event{Type: watch.Error, Object: &apierrors.NewResourceExpired("old").ErrStatus}
		}
		e, got := failure(given{events})
		if got != c.want || got && !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) || !got && len(events) != c.sent {
			t.Errorf("%s: %v, %v, and %d events are left of %d", c.name, e, got, len(events), c.sent)
		}
	}
}

// A watch that is stopped while nobody reads it ends.
func TestStoppedWhileFull(t *testing.T) {
	events := make(chan watch.Event, watchBuffer+10)
	for range cap(events) {
		events <- watch.Event{Type: watch.Added, Object: stamped{&corev1.ConfigMap{}, time.Now()}}
	}
	w := ageingWatch{Interface: given{events}, events: make(chan watch.Event, watchBuffer), stopped: make(chan struct{})}
	w.stop = func() { close(w.stopped) }
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.run(&ager{window: time.Minute})
	}()
	w.Stop()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("it goes on")
	}
}
