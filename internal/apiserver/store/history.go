package store

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
)

// A cache keeps the objects of past events, for watches that begin at an old revision. The library keeps those of the last 75 seconds, however many they
// are, and drops them only when newer ones come: what a burst has written stays for as long as nothing else is written. Here that is bounded by what it takes.
// A watch from before that goes to etcd, which has the history of the last minutes anyway.
const (
	// historyEvents is how many events a cache keeps at the most, some time's worth for who lists and then watches. The library doubles its room from 100
	// on, so it is one of these numbers.
	historyEvents = 400
	// historyBytes is about how much they take, as they are encoded; decoded it is two or three times as much. The last 100 are kept, whatever they take.
	historyBytes = 1 << 20
)

// ager tells a cache when its events were. It goes by the clock, except that each event takes its share of the window that the cache keeps: after
// historyEvents events, or historyBytes bytes, the window is over. Times ahead of the clock are seen by the library's metric of how long events take through
// the cache, too, which is off in a burst.
type ager struct {
	window time.Duration
	last   time.Time
}

func (a *ager) stamp(now time.Time, size int) time.Time {
	next := a.last.Add(max(a.window/historyEvents, a.window*time.Duration(min(size, historyBytes))/historyBytes))
	if next.Before(now) {
		next = now
	}
	a.last = next
	return next
}

// ageing is the storage that a cache is filled from.
type ageing struct {
	storage.Interface
	// ager is used by one watch at a time: a cache has no more.
	ager *ager
}

// Watch implements storage.Interface.
func (a ageing) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	w, err := a.Interface.Watch(ctx, key, options)
	if err != nil {
		return nil, err
	}
	s := &ageingWatch{Interface: w, events: make(chan watch.Event, watchBuffer), stopped: make(chan struct{})}
	s.stop = sync.OnceFunc(func() { close(s.stopped) })
	go s.run(a.ager)
	return s, nil
}

// watchBuffer is how many events may be between etcd and a cache, beside those of the library's own buffers.
const watchBuffer = 16

type ageingWatch struct {
	watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	stop    func()
}

// ResultChan implements watch.Interface.
func (w *ageingWatch) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface.
func (w *ageingWatch) Stop() {
	w.stop()
	w.Interface.Stop()
}

func (w *ageingWatch) run(a *ager) {
	defer close(w.events)
	for e := range w.Interface.ResultChan() {
		if timed, ok := e.Object.(storage.WatchEventWithRecordTime); ok && e.Type != watch.Bookmark { // those are not kept
			object := timed.Unwrap()
			e.Object = stamped{object, a.stamp(timed.RecordTime(), sizeOf(object))}
		}
		select {
		case w.events <- e:
		case <-w.stopped:
			return
		}
	}
}

// sizeOf is an object's size as it is stored; 0 where it does not tell.
func sizeOf(o runtime.Object) int {
	if sized, ok := o.(interface{ Size() int }); ok {
		return sized.Size()
	}
	return 0
}

// stamped is an object with the time that the cache is told.
type stamped struct {
	runtime.Object
	at time.Time
}

var _ interface {
	storage.WatchEventWithRecordTime
	metav1.ObjectMetaAccessor
} = stamped{}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (s stamped) GetObjectMeta() metav1.Object {
	m, _ := meta.Accessor(s.Object) // nil, as for an object that has none
	return m
}

// RecordTime implements storage.WatchEventWithRecordTime.
func (s stamped) RecordTime() time.Time { return s.at }

// Unwrap implements storage.WatchEventWithRecordTime.
func (s stamped) Unwrap() runtime.Object { return s.Object }

// DeepCopyObject implements runtime.Object.
func (s stamped) DeepCopyObject() runtime.Object { return stamped{s.Object.DeepCopyObject(), s.at} }

// remembering is a cache whose watches go over etcd when they begin before the cache's history.
type remembering struct {
	*cacher.CacheDelegator
	etcd storage.Interface
}

// Watch implements storage.Interface.
func (r remembering) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	w, err := r.CacheDelegator.Watch(ctx, key, options)
	if err != nil {
		return nil, err
	}
	failed, ok := failure(w)
	if !ok {
		return w, nil
	}
	if apierrors.IsResourceExpired(apierrors.FromObject(failed.Object)) {
		return r.etcd.Watch(ctx, key, options)
	}
	said := make(chan watch.Event, 1)
	said <- failed
	close(said)
	return watch.NewProxyWatcher(said), nil
}

// failure is the event of a watch that could not begin. The cache makes such a watch with its one event in a channel that takes no other; the channels of
// all others take more.
func failure(w watch.Interface) (watch.Event, bool) {
	events := w.ResultChan()
	if cap(events) != 1 || len(events) != 1 {
		return watch.Event{}, false
	}
	return <-events, true
}
