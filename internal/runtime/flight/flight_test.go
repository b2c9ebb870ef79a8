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
			_, err := g.Join(first, Work{Key: "k", Variant: "v", Bound: time.Minute, Do: func(context.Context) (string, error) {
				<-release
				return "id", nil
			}})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the caller that went: %v", err)
			}
		}()
		synctest.Wait() // the work is under way
		cancel()        // its caller goes; the work does not
		joined := make(chan string, 1)
		go func() {
			id, err := g.Join(t.Context(), Work{Key: "k", Variant: "v", Bound: time.Minute, Do: func(context.Context) (string, error) {
				return "", errors.New("ran twice")
			}})
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
			id, err := g.Join(t.Context(), Work{Key: "k", Variant: variant, Bound: time.Minute, Do: func(context.Context) (string, error) { f(); return variant, nil }})
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

// TestGivenUp: what nobody waits for any more is given up, once, and what somebody got is not.
func TestGivenUp(t *testing.T) {
	for name, c := range map[string]struct {
		callers int  // how many wait
		gone    int  // how many of them go before the end
		other   bool // one who wants something else waits, too
		fails   bool
		want    int
	}{
		"nobody goes":                {callers: 2},
		"the only one":               {callers: 1, gone: 1, want: 1},
		"all":                        {callers: 3, gone: 3, want: 1},
		"all but one":                {callers: 3, gone: 2},
		"another variant is no heir": {callers: 1, gone: 1, other: true, want: 1},
		"nothing was made":           {callers: 1, gone: 1, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g Group
				release, given := make(chan struct{}), 0
				work := Work{Key: "k", Variant: "v", Bound: time.Minute, GivenUp: func(id string) { given++ }, Do: func(context.Context) (string, error) {
					<-release
					if c.fails {
						return "", errors.New("failed")
					}
					return "id", nil
				}}
				for i := range c.callers {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					go func() { _, _ = g.Join(ctx, work) }()
					synctest.Wait()
					if i >= c.callers-c.gone {
						cancel()
					}
				}
				if c.other {
					other := work
					other.Variant, other.Do = "w", func(context.Context) (string, error) { return "other", nil }
					go func() { _, _ = g.Join(t.Context(), other) }()
				}
				synctest.Wait()
				close(release)
				synctest.Wait()
				if given != c.want {
					t.Errorf("given up %d times, want %d", given, c.want)
				}
			})
		})
	}
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
