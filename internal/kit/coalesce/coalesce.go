// Package coalesce lets the timers of a process that wait for a second or more end at the same moments.
//
// What an idle process costs is at how many moments a second anything ends in it, not how much does: each wakes three threads, which find out that there is
// no more to do. It guarantees that a time is at most half a second longer or shorter than was asked for, and that one which begins at such a moment is
// rounded to whole seconds. It is for what looks around from time to time, not for deadlines.
package coalesce

import "time"

// Period is the time between two moments.
const Period = time.Second

var start = time.Now()

// Align is how long to wait in the place of d: until the moment that is nearest to its end. Times of less than three quarters of a Period stay what they are.
func Align(d time.Duration) time.Duration { return align(time.Since(start), d) }

// align is Align, so long after a moment.
func align(since, d time.Duration) time.Duration {
	if d < Period*3/4 {
		return d
	}
	return (since + d).Round(Period) - since
}
