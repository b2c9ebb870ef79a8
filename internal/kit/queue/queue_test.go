package queue

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// run works on the items until the test ends, and returns a reader of what was worked on, in order, with the time since the start.
func run(t *testing.T, q *Queue[string], work func(string) error) (worked func() map[string][]time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended, start := make(chan struct{}), time.Now()
	var mu sync.Mutex
	all := map[string][]time.Duration{}
	go func() {
		defer close(ended)
		q.Run(ctx, 1, func(_ context.Context, item string) error {
			mu.Lock()
			all[item] = append(all[item], time.Since(start))
			mu.Unlock()
			return work(item)
		}, func(string, error) {})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return func() map[string][]time.Duration {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(all)
	}
}

func TestWhatFailsIsTriedAgainLaterEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[string]()
		var succeeds atomic.Bool
		worked := run(t, q, func(string) error {
			if !succeeds.Load() {
				return errors.New("no")
			}
			return nil
		})
		q.Add("a")
		time.Sleep(36 * time.Millisecond)
		want := []time.Duration{0, 5 * time.Millisecond, 15 * time.Millisecond, 35 * time.Millisecond}
		if got := worked()["a"]; !slices.Equal(got, want) {
			t.Errorf("worked on at %v, want %v", got, want)
		}
		time.Sleep(time.Hour)
		got := worked()["a"]
		if last := got[len(got)-1] - got[len(got)-2]; last != time.Minute {
			t.Errorf("the longest delay is %v", last)
		}
		succeeds.Store(true)
		time.Sleep(time.Minute)
		n := len(worked()["a"])
		succeeds.Store(false)
		q.Add("a")
		time.Sleep(6 * time.Millisecond)
		if got := len(worked()["a"]) - n; got != 2 {
			t.Errorf("after a success it was worked on %d times, want 2: at once, and after the first delay", got)
		}
	})
}

func TestTheEarlierTimeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[string]()
		worked := run(t, q, func(string) error { return nil })
		q.AddAfter("a", time.Hour)
		q.AddAfter("a", time.Second)
		q.AddAfter("a", time.Minute)
		q.AddAfter("b", -time.Second)
		time.Sleep(2 * time.Hour)
		got := worked()
		if !slices.Equal(got["a"], []time.Duration{time.Second}) || !slices.Equal(got["b"], []time.Duration{0}) {
			t.Errorf("worked on at %v", got)
		}
	})
}

func TestAnEndForgetsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[string]()
		q.AddAfter("a", time.Second)
		q.ShutDown()
		q.AddAfter("b", time.Second)
		q.Add("c")
		time.Sleep(time.Minute)
		if item, ok := q.Get(); ok {
			t.Errorf("got %q of a queue that has ended", item)
		}
	})
}
