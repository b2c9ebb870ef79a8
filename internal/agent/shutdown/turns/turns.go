// Package turns decides which pods end when the node shuts down: those of low priority first, each priority with a time of its own, as a kubelet has it
// (KEP-2000, KEP-2712). It is a pure function.
package turns

import (
	"slices"
	"time"
)

// SystemCritical is the least priority of the classes system-cluster-critical and system-node-critical.
const SystemCritical = 2_000_000_000

// Period is the time that pods of a priority, and of those up to the next period's, have to end.
type Period struct {
	Priority int32
	Grace    time.Duration
}

// TwoPhases are the periods of a time of which the last part is for critical pods; nil: there is no time.
func TwoPhases(all, critical time.Duration) []Period {
	if all <= 0 {
		return nil
	}
	critical = max(0, min(critical, all))
	return []Period{{Priority: 0, Grace: all - critical}, {Priority: SystemCritical, Grace: critical}}
}

// Total is the time of all periods.
func Total(periods []Period) (sum time.Duration) {
	for _, p := range periods {
		sum += p.Grace
	}
	return sum
}

// Squeeze are the periods with their share of a time that is shorter than theirs.
func Squeeze(periods []Period, limit time.Duration) []Period {
	total, all := Total(periods), slices.Clone(periods)
	if limit >= total {
		return all
	}
	for i := range all {
		all[i].Grace = time.Duration(float64(all[i].Grace) * (float64(max(0, limit)) / float64(total)))
	}
	return all
}

// Course is how far a shutdown is. It changes by Next alone.
//
//	turn 0 --> turn 1 --> ... --> over
//	       no pod of the turn runs, or its time has passed
type Course struct {
	// periods, by priority.
	periods []Period
	// begun is when each turn has begun, up to the present one; after the last one, when that was over.
	begun []time.Time
}

// Begin begins with the pods of the least priority. There is at least one period.
func Begin(periods []Period, now time.Time) Course {
	c := Course{periods: slices.Clone(periods), begun: []time.Time{now}}
	slices.SortStableFunc(c.periods, func(a, b Period) int { return int(max(-1, min(1, int64(a.Priority)-int64(b.Priority)))) })
	return c
}

// Next ends the turns that have had their time, or of whose priorities no pod runs. running are the priorities of the pods that still do. wake is when it is to be
// asked again even if none ends; zero: the course is over.
func (c Course) Next(running []int32, now time.Time) (next Course, wake time.Time) {
	held := make([]bool, len(c.periods))
	for _, p := range running {
		held[c.turn(p)] = true
	}
	next = Course{periods: c.periods, begun: slices.Clone(c.begun)}
	for !next.Over() {
		i := len(next.begun) - 1
		end := next.begun[i].Add(c.periods[i].Grace)
		if held[i] && now.Before(end) {
			return next, end
		}
		// A turn that was looked at late does not take from the time of the next one, nor is that begun before it is known.
		if end.After(now) {
			end = now
		}
		next.begun = append(next.begun, end)
	}
	return next, time.Time{}
}

// Turn is the present turn, from 0, of Turns.
func (c Course) Turn() int { return len(c.begun) - 1 }

// Turns is how many there are.
func (c Course) Turns() int { return len(c.periods) }

// Over says that all turns have passed.
func (c Course) Over() bool { return len(c.begun) > len(c.periods) }

// Until is by when the course is over at the latest; where it is, when it was.
func (c Course) Until() time.Time {
	at := c.begun[len(c.begun)-1]
	for i := len(c.begun) - 1; i < len(c.periods); i++ {
		at = at.Add(c.periods[i].Grace)
	}
	return at
}

// Begun is when the course has begun.
func (c Course) Begun() time.Time { return c.begun[0] }

// Ends says whether a pod's turn has come: since when, and with which grace, which is no longer than its own.
func (c Course) Ends(priority int32, own time.Duration) (since time.Time, grace time.Duration, ends bool) {
	i := c.turn(priority)
	if i >= len(c.begun) {
		return time.Time{}, 0, false
	}
	return c.begun[i], min(own, c.periods[i].Grace), true
}

// turn is that of a priority: the last one that begins at it or below; priorities below all are of the first.
func (c Course) turn(priority int32) int {
	i := len(c.periods) - 1
	for i > 0 && c.periods[i].Priority > priority {
		i--
	}
	return i
}

// Priorities are one of each turn.
func (c Course) Priorities() (all []int32) {
	for _, p := range c.periods {
		all = append(all, p.Priority)
	}
	return all
}
