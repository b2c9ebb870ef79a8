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
			_, err := g.Join(first, "k", time.Minute, func(context.Context) (string, error) {
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
			id, err := g.Join(t.Context(), "k", time.Minute, func(context.Context) (string, error) {
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
