package keeper

import "time"

const (
	// healthy is how long a worker must live for its death to count as the first one.
	healthy = 10 * time.Second
	// A worker that dies is replaced at once; one that keeps dying, after pauses that double.
	firstPause = 100 * time.Millisecond
	maxPause   = 10 * time.Second
	free       = 2 // deaths in a row that cost no pause
)

// backoff tells how long to wait before the next start.
type backoff struct{ deaths int }

func (b *backoff) next(lived time.Duration) time.Duration {
	if lived >= healthy {
		b.deaths = 0
	}
	b.deaths++
	if b.deaths <= free {
		return 0
	}
	return min(firstPause<<min(b.deaths-free-1, 10), maxPause)
}
