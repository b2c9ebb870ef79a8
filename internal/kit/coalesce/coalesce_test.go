package coalesce

import (
	"testing"
	"time"
)

// Timers of about a second end at the same moments, and one that begins at such a moment ends at the next one. Short ones are what they are.
func TestAlign(t *testing.T) {
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
		if got := c.now + align(c.now, c.d); got != c.want {
			t.Errorf("a time of %v that begins at %v ends at %v, want %v", c.d, c.now, got, c.want)
		}
	}
	if got := Align(5 * time.Second); got < 4500*time.Millisecond || got > 5500*time.Millisecond {
		t.Errorf("five seconds are %v", got)
	}
}
