package keeper

import (
	"slices"
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	var b backoff
	var got []time.Duration
	for range 11 {
		got = append(got, b.next(time.Second))
	}
	ms := time.Millisecond
	want := []time.Duration{0, 0, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms, maxPause, maxPause}
	if !slices.Equal(got, want) {
		t.Errorf("pauses %v, want %v", got, want)
	}
	if d := b.next(healthy); d != 0 {
		t.Errorf("after a long life: %s, want none", d)
	}
}
