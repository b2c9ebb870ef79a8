package keyed

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// Who waits for a key gets it in turn; another key is free meanwhile; nothing is kept of keys that nobody has.
func TestLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Lock[string]
		unlock := l.Wait("a")
		l.Wait("b")()
		var order []int
		for i := range 3 {
			go func() {
				unlock, err := l.Lock(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i)
				unlock()
			}()
			synctest.Wait()
		}
		if len(order) != 0 {
			t.Errorf("%v have a key that is taken", order)
		}
		unlock()
		synctest.Wait()
		if !slices.Equal(order, []int{0, 1, 2}) {
			t.Errorf("the order is %v", order)
		}
		if len(l.keys) != 0 {
			t.Errorf("%d keys are kept", len(l.keys))
		}
	})
}

func TestWhoNoLongerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Lock[int]
		unlock := l.Wait(1)
		cause := errors.New("no longer wanted")
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error)
		go func() {
			_, err := l.Lock(ctx, 1)
			done <- err
		}()
		synctest.Wait()
		cancel(cause)
		if err := <-done; !errors.Is(err, cause) {
			t.Errorf("%v, want the cause", err)
		}
		unlock()
		l.Wait(1)()
		if len(l.keys) != 0 {
			t.Errorf("%d keys are kept", len(l.keys))
		}
	})
}

func TestDo(t *testing.T) {
	var l Lock[string]
	var wg sync.WaitGroup
	n := 0
	for range 50 {
		wg.Go(func() {
			if err := l.Do(t.Context(), "k", func() error { n++; return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	fault := errors.New("fault")
	if err := l.Do(t.Context(), "k", func() error { return fault }); !errors.Is(err, fault) {
		t.Error(err)
	}
	if n != 50 || len(l.keys) != 0 {
		t.Errorf("%d runs, %d keys are kept", n, len(l.keys))
	}
}
