package store

import (
	"time"

	"k8s.io/utils/clock"
)

// beat is the clock of the caches: each waits about a second again and again, for the bookmarks of its watches, and on this clock they
// wait for the same moments. Else every resource would wake an idle machine once a second.
type beat struct {
	clock.RealClock
	start time.Time
}

// period is the time between two of those moments.
const period = time.Second

func newBeat() *beat { return &beat{start: time.Now()} }

var _ clock.WithTicker = (*beat)(nil)

// NewTimer implements clock.Clock.
func (b *beat) NewTimer(d time.Duration) clock.Timer {
	return beatTimer{b.RealClock.NewTimer(b.align(time.Now(), d)), b}
}

// align moves the end of a time to the beat that is nearest, if it is not a short time.
func (b *beat) align(now time.Time, d time.Duration) time.Duration {
	if d < period*3/4 {
		return d
	}
	since := now.Sub(b.start)
	return (since + d).Round(period) - since
}

type beatTimer struct {
	clock.Timer
	beat *beat
}

// Reset implements clock.Timer.
func (t beatTimer) Reset(d time.Duration) bool { return t.Timer.Reset(t.beat.align(time.Now(), d)) }
