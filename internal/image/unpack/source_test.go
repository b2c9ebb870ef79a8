package unpack

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sync/semaphore"
)

// A layer that is made ends the attempts of all others at it, and of no other layer.
func TestArrivals(t *testing.T) {
	var a arrivals
	first, forgetFirst := a.watch(t.Context(), "layer")
	second, forgetSecond := a.watch(t.Context(), "layer")
	other, forgetOther := a.watch(t.Context(), "other")
	forgetFirst() // its own pull has made it: it ends without a reason
	a.tell("layer")
	if err := context.Cause(first); !errors.Is(err, context.Canceled) {
		t.Errorf("who watches no more is told %v", err)
	}
	if err := context.Cause(second); !errors.Is(err, errBrought) {
		t.Errorf("who watches is told %v", err)
	}
	if err := other.Err(); err != nil {
		t.Errorf("who watches another layer is told %v", err)
	}
	forgetSecond()
	forgetOther()
	if len(a.waits) > 0 {
		t.Errorf("left: %v", a.waits)
	}
}

// All layers of an image count together.
func TestImageMeter(t *testing.T) {
	m := &imageMeter{max: 10}
	if _, err := io.ReadAll(m.of(strings.NewReader("1234567"))); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(m.of(strings.NewReader("890"))); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if _, err := io.ReadAll(m.of(strings.NewReader("x"))); !errdefs.IsResourceExhausted(err) {
		t.Errorf("beyond it: %v", err)
	}
}

// A turn that is lent is somebody else's, and is waited for when the download moves again; at the end all are back.
func TestTurnIsLent(t *testing.T) {
	of := semaphore.NewWeighted(1)
	mine, err := take(t.Context(), of, 1) // no patience
	if err != nil {
		t.Fatal(err)
	}
	mine.watch(0)
	if err := of.Acquire(t.Context(), 1); err != nil { // it is lent
		t.Fatal(err)
	}
	mine.moved(t.Context(), pace-1) // too little to be worth a turn: nobody waits
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	mine.moved(ctx, pace) // it waits, until its pull ends
	mine.end()
	if of.TryAcquire(1) {
		t.Error("a turn was given back that was somebody else's")
	}
	of.Release(1)
	if !of.TryAcquire(1) {
		t.Error("the turn is lost")
	}
}
