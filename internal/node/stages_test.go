package node

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
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

// TestLocks: parts that were started apart work beside each other in one run directory; two of the same do not, and a whole node is alone.
func TestLocks(t *testing.T) {
	dir := t.TempDir()
	refused := func(role part, parts ...part) {
		t.Helper()
		unlock, err := lock(dir, parts...)
		if err == nil {
			unlock()
			t.Errorf("%v got the lock of %s", parts, role)
			return
		}
		for _, say := range []string{"process " + strconv.Itoa(os.Getpid()) + ")", "role " + string(role) + " ", dir + ":", "--run-dir"} {
			if !strings.Contains(err.Error(), say) {
				t.Errorf("%v: %q does not say %q", parts, err, say)
			}
		}
	}
	var unlocks []func()
	for _, p := range []part{partRuntime, partAgent} {
		unlock, err := lock(dir, p)
		if err != nil {
			t.Fatal(err)
		}
		unlocks = append(unlocks, unlock)
	}
	refused(partRuntime, partRuntime)
	refused(partAgent, partAgent)
	refused(partRuntime, allParts...)
	if _, err := lockIdle(dir); err == nil {
		t.Error("a node that runs is taken for one that does not")
	}
	// The refusal of the whole has left nothing locked.
	unlock, err := lock(dir, partAPIServer)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range append(unlocks, unlock) {
		u()
	}
	if unlock, err = lockIdle(dir); err != nil {
		t.Fatal(err)
	}
	refused(partAPIServer, allParts...)
	unlock()
	if unlock, err = lock(dir, allParts...); err != nil {
		t.Fatal(err)
	}
	refused(partAgent, partAgent)
	unlock()
}

// TestAStoppedNodeIsLookedAtWithoutATrace: no file is made to find that no node runs.
func TestAStoppedNodeIsLookedAtWithoutATrace(t *testing.T) {
	dir := t.TempDir()
	unlock, err := lockIdle(dir)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("files %v, %v", files, err)
	}
}
