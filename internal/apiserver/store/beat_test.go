package store

import (
	"testing"
	"time"
)

// Timers of about a second end at the same moments, and one that begins at such a moment ends at the next one. Short ones are what they are.
func TestBeat(t *testing.T) {
	b := newBeat()
	at := func(d time.Duration) time.Time { return b.start.Add(d) }
	for _, c := range []struct{ now, d, want time.Duration }{
		{0, 750 * time.Millisecond, time.Second},
		{0, 1250 * time.Millisecond, time.Second},
		{3 * time.Second, 800 * time.Millisecond, 4 * time.Second},
		{3*time.Second + 20*time.Microsecond, 1249 * time.Millisecond, 4 * time.Second},
		{3*time.Second + 400*time.Millisecond, time.Second, 4 * time.Second},
		{3*time.Second + 700*time.Millisecond, 15 * time.Second, 19 * time.Second},
		{3*time.Second + 700*time.Millisecond, 100 * time.Millisecond, 3*time.Second + 800*time.Millisecond},
		{3*time.Second + 700*time.Millisecond, 0, 3*time.Second + 700*time.Millisecond},
	} {
		if got := c.now + b.align(at(c.now), c.d); got != c.want {
			t.Errorf("a timer of %v at %v ends at %v, want %v", c.d, c.now, got, c.want)
		}
	}
	timer := b.NewTimer(time.Millisecond)
	<-timer.C()
	timer.Reset(2 * time.Millisecond)
	<-timer.C()
}
