package node

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestStagesStopInReverse(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := newStages(ctx)
	var ended []string // written by one stage at a time: each ends before the next is told to
	for _, name := range []string{"first", "second", "third"} {
		s.run(name, func(ctx context.Context) error {
			<-ctx.Done()
			ended = append(ended, name)
			return ctx.Err()
		})
	}
	cancel()
	if err := s.wait(); err != nil {
		t.Errorf("an orderly stop: %v", err)
	}
	if !slices.Equal(ended, []string{"third", "second", "first"}) {
		t.Errorf("ended in the order %v", ended)
	}
}

func TestAStageThatFailsStopsAll(t *testing.T) {
	broken := errors.New("broken")
	s := newStages(t.Context())
	s.run("first", func(ctx context.Context) error { <-ctx.Done(); return nil })
	s.run("second", func(context.Context) error { return broken })
	if err := s.wait(); !errors.Is(err, broken) || !strings.Contains(err.Error(), "second") {
		t.Errorf("error %v, want that of the second stage, by its name", err)
	}
}

func TestAStageThatEndsByItselfIsAFault(t *testing.T) {
	s := newStages(t.Context())
	s.run("only", func(context.Context) error { return nil })
	if err := s.wait(); err == nil || !strings.Contains(err.Error(), "only") {
		t.Errorf("error %v, want one that names the stage", err)
	}
}

func TestLockIsExclusiveAndNamesItsHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock(path); err == nil || !strings.Contains(err.Error(), "--run-dir") {
		t.Errorf("a second lock: %v, want a refusal with its remedy", err)
	}
	unlock()
	unlock, err = lock(path)
	if err != nil {
		t.Errorf("after the release: %v", err)
	}
	unlock()
}
