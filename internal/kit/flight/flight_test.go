package flight

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

type (
	group = Group[string, struct{}]
	work  = Work[string, struct{}]
)

func TestJoinReturnsTheFirstOnesResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		release := make(chan struct{})
		first, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := g.Join(first, work{Key: "k", Variant: "v", Bound: time.Minute, Do: func(context.Context) (string, error) {
				<-release
				return "id", nil
			}}, nil)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the caller that went: %v", err)
			}
		}()
		synctest.Wait() // the work is under way
		cancel()        // its caller goes; the work does not
		joined := make(chan string, 1)
		go func() {
			id, err := g.Join(t.Context(), work{Key: "k", Variant: "v", Bound: time.Minute, Do: func(context.Context) (string, error) {
				return "", errors.New("ran twice")
			}}, nil)
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
		var g group
		release, results := make(chan struct{}), make(chan string, 2)
		join := func(variant string, f func()) {
			id, err := g.Join(t.Context(), work{Key: "k", Variant: variant, Bound: time.Minute, Do: func(context.Context) (string, error) { f(); return variant, nil }}, nil)
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
				var g group
				release, given := make(chan struct{}), 0
				w := work{Key: "k", Variant: "v", Bound: time.Minute, GivenUp: func(id string) { given++ }, Do: func(context.Context) (string, error) {
					<-release
					if c.fails {
						return "", errors.New("failed")
					}
					return "id", nil
				}}
				for i := range c.callers {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					go func() { _, _ = g.Join(ctx, w, nil) }()
					synctest.Wait()
					if i >= c.callers-c.gone {
						cancel()
					}
				}
				if c.other {
					other := w
					other.Variant, other.Do = "w", func(context.Context) (string, error) { return "other", nil }
					go func() { _, _ = g.Join(t.Context(), other, nil) }()
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

// TestCancel: a work that is to end with the last one who waits is cancelled then, and not before; the next caller begins anew and does not get its error.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		hold, cancelled := make(chan struct{}), false
		w := work{Key: "k", Cancel: true, Do: func(ctx context.Context) (string, error) {
			<-ctx.Done()
			cancelled = true
			<-hold // slow to give up
			return "", ctx.Err()
		}}
		first, cancelFirst := context.WithCancel(t.Context())
		second, cancelSecond := context.WithCancel(t.Context())
		go g.Join(first, w, nil)
		synctest.Wait()
		go g.Join(second, w, nil)
		synctest.Wait()
		cancelFirst()
		synctest.Wait()
		if cancelled {
			t.Error("it is cancelled although somebody waits")
		}
		cancelSecond()
		synctest.Wait()
		if !cancelled {
			t.Error("it goes on although nobody waits")
		}
		w.Do = func(context.Context) (string, error) { return "new", nil }
		if id, err := g.Join(t.Context(), w, nil); err != nil || id != "new" {
			t.Errorf("%q, %v", id, err)
		}
		close(hold)
		g.Wait()
		if len(g.runs) != 0 {
			t.Errorf("%d runs are kept", len(g.runs))
		}
	})
}

// TestShared: who joins looks at what the one shares who began.
func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[string, int]
		release := make(chan struct{})
		var seen []int
		left := 0
		join := func(shared int) {
			_, err := g.Join(t.Context(), Work[string, int]{Key: "k", Shared: shared, Do: func(context.Context) (string, error) { <-release; return "", nil }},
				func(n int) func() { seen = append(seen, n); return func() { left++ } })
			if err != nil {
				t.Error(err)
			}
		}
		for i := range 2 {
			go join(i + 1)
			synctest.Wait()
		}
		close(release)
		synctest.Wait()
		if !slices.Equal(seen, []int{1, 1}) || left != 2 {
			t.Errorf("seen %v, %d have left", seen, left)
		}
	})
}
