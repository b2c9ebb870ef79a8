package ruleset

import "time"

// pace is how often is looked and repaired. Against somebody who takes the rules away again and again, each repair makes the
// next one wait longer; for the sake of others' rules is looked a few times a second at most. It is pure.
type pace struct {
	notBefore time.Time // no repair
	notForOld time.Time // no look for others' sake
	wait      time.Duration
	last      time.Time // the last repair
}

const (
	firstWait    = 20 * time.Millisecond
	longestWait  = 10 * time.Second
	foreignPause = 300 * time.Millisecond
)

// due is when to look; in the past: now.
func (p *pace) due(c Concern) time.Time {
	if c == Elsewhere && p.notForOld.After(p.notBefore) {
		return p.notForOld
	}
	return p.notBefore
}

// looked notes a look, and whether it had to repair.
func (p *pace) looked(now time.Time, repaired bool) {
	p.notForOld = now.Add(foreignPause)
	if !repaired {
		return
	}
	// Who leaves the rules alone for long enough is forgiven.
	if p.last.IsZero() || now.Sub(p.last) > 16*p.wait+time.Second {
		p.wait = firstWait
	} else {
		p.wait = min(2*p.wait, longestWait)
	}
	p.last, p.notBefore = now, now.Add(p.wait)
}
