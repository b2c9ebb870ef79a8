package flight

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestJoinReturnsTheFirstOnesResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		release := make(chan struct{})
		first, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := g.Join(first, "k", "v", time.Minute, func(context.Context) (string, error) {
				<-release
				return "id", nil
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the caller that went: %v", err)
			}
		}()
		synctest.Wait() // the work is under way
		cancel()        // its caller goes; the work does not
		joined := make(chan string, 1)
		go func() {
			id, err := g.Join(t.Context(), "k", "v", time.Minute, func(context.Context) (string, error) {
				return "", errors.New("ran twice")
			})
			if err != nil {
				t.Error(err)
			}
			joined <- id
		}()
		synctest.Wait() // the second caller waits for the first one's work
		close(release)
		if id := <-joined; id != "id" {
			t.Errorf("joined result %q", id)
		}
	})
}

func TestJoinDoesNotJoinAnotherVariant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		release, results := make(chan struct{}), make(chan string, 2)
		join := func(variant string, f func()) {
			id, err := g.Join(t.Context(), "k", variant, time.Minute, func(context.Context) (string, error) { f(); return variant, nil })
			if err != nil {
				t.Error(err)
			}
			results <- id
		}
		running := 0
		go join("a", func() { running++; <-release; running-- })
		synctest.Wait()
		go join("b", func() {
			if running != 0 {
				t.Error("two variants run side by side")
			}
		})
		synctest.Wait()
		close(release)
		if a, b := <-results, <-results; a == b {
			t.Errorf("both got %q", a)
		}
	})
}

func TestOneExcludes(t *testing.T) {
	var g Group
	var wg sync.WaitGroup
	n := 0
	for range 50 {
		wg.Go(func() {
			if err := g.One(t.Context(), "k", func() error { n++; return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n != 50 || len(g.queues) != 0 {
		t.Errorf("%d runs, %d queues left", n, len(g.queues))
	}
	ctx, cancel := context.WithCancel(t.Context())
	blocked, stop := make(chan struct{}), make(chan struct{})
	go func() { _ = g.One(t.Context(), "k", func() error { close(blocked); <-stop; return nil }) }()
	<-blocked
	cancel()
	if err := g.One(ctx, "k", func() error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled wait: %v", err)
	}
	close(stop)
}
