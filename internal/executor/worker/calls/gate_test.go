//go:build cgo

package calls

import (
	"context"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

func TestGate(t *testing.T) {
	var g gate
	ctx := t.Context()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := g.enter(ctx); err != nil {
		t.Fatal(err)
	}
	if err := g.shut(ended); !errdefs.IsUnavailable(err) {
		t.Errorf("shut with somebody inside: %v", err)
	}
	if err := g.enter(ctx); err != nil {
		t.Errorf("after a shut that failed: %v", err)
	}
	shut := make(chan error, 1)
	go func() { shut <- g.shut(ctx) }()
	g.leave()
	select {
	case err := <-shut:
		t.Errorf("shut with one inside: %v", err)
	case <-time.After(10 * time.Millisecond): // nothing is to happen
	}
	g.leave()
	if err := <-shut; err != nil {
		t.Error(err)
	}
	if err := g.enter(ended); err == nil {
		t.Error("somebody came in")
	}
	if err := g.shut(ctx); !errdefs.IsUnavailable(err) {
		t.Errorf("shut twice: %v", err)
	}
	in := make(chan error, 1)
	go func() { in <- g.enter(ctx) }()
	g.open()
	if err := <-in; err != nil {
		t.Error(err)
	}
}
