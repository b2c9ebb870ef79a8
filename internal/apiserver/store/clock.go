package store

import (
	"time"

	"k8s.io/utils/clock"

	"monopod.dev/monopod/internal/kit/coalesce"
)

// cacheClock is the clock of the caches: each waits about a second again and again, for the bookmarks of its watches, and on this clock they
// wait for the same moments. Else every resource would wake an idle machine once a second.
type cacheClock struct{ clock.RealClock }

var _ clock.WithTicker = cacheClock{}

// NewTimer implements clock.Clock.
func (c cacheClock) NewTimer(d time.Duration) clock.Timer {
	return cacheTimer{c.RealClock.NewTimer(coalesce.Align(d))}
}

type cacheTimer struct{ clock.Timer }

// Reset implements clock.Timer.
func (t cacheTimer) Reset(d time.Duration) bool { return t.Timer.Reset(coalesce.Align(d)) }
