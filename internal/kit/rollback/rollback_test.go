package rollback

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
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

func TestReleaseUndoesNothing(t *testing.T) {
	var s Stack
	s.Add("one", func(context.Context) error { t.Error("undone"); return nil })
	s.Release()
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}
