package rollback

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRunUndoesAllInReverse(t *testing.T) {
	var done []string
	var s Stack
	for _, name := range []string{"one", "two", "three"} {
		s.Add(name, func(ctx context.Context) error {
			if ctx.Err() != nil {
				t.Errorf("undo %s: its context has ended", name)
			}
			done = append(done, name)
			if name == "two" {
				return errors.New("stuck")
			}
			return nil
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.Run(ctx)
	if !slices.Equal(done, []string{"three", "two", "one"}) {
		t.Errorf("undone: %v", done)
	}
	if err == nil || !strings.Contains(err.Error(), "undo two: stuck") {
		t.Errorf("error %v does not name the step", err)
	}
}

func TestBound(t *testing.T) {
	bounded := Stack{Bound: time.Millisecond}
	reached := false
	bounded.Add("one", func(ctx context.Context) error { reached = true; return ctx.Err() })
	bounded.Add("two", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	if err := bounded.Run(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "undo two") {
		t.Errorf("error %v does not say that the time is over", err)
	}
	if !reached {
		t.Error("the undo after the one that has used up the time does not run")
	}

	var boundless Stack
	boundless.Add("one", func(ctx context.Context) error {
		if _, has := ctx.Deadline(); has {
			t.Error("an operation without a bound has one")
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if err := boundless.Run(ctx); err != nil {
		t.Error(err)
	}
}

func TestReleaseUndoesNothing(t *testing.T) {
	var s Stack
	s.Add("one", func(context.Context) error { t.Error("undone"); return nil })
	s.Release()
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}
