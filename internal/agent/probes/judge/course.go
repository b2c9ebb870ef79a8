package judge

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// firstAgain is how long after the first attempt the second one comes; each further one waits twice as long.
const firstAgain = 100 * time.Millisecond

// course is how far one probe has come.
type course struct {
	exists, silent bool
	delay, period  time.Duration
	// thresholds are how many equal outcomes in a row it takes, by outcome.
	thresholds [Failure + 1]int

	// due is when the next attempt is, regular the moment of its period that it belongs to: attempts between two such moments are extra ones.
	due, regular time.Time
	// counts: the attempt that is due counts if it fails, and is told of.
	counts bool
	// eager: it asks more often until it succeeds, or until this moment; zero: it does not.
	eager time.Time
	// wait is how long after an attempt that failed an eager probe asks again.
	wait time.Duration

	last Outcome
	run  int
}

func newCourse(p *v1.Probe) course {
	return course{
		exists: true, delay: time.Duration(p.InitialDelaySeconds) * time.Second, period: time.Duration(max(p.PeriodSeconds, 1)) * time.Second,
		thresholds: [Failure + 1]int{Success: int(p.SuccessThreshold), Failure: int(p.FailureThreshold)},
	}
}

// begin has the probe ask first at a moment. If that one does not count, an eager probe asks all the same, and one that is not asks when it does: a
// period later.
func (p *course) begin(first time.Time, counts, eager bool) {
	p.due, p.regular, p.counts, p.eager = first, first, counts, time.Time{}
	switch {
	case eager:
		p.eager, p.wait = first.Add(p.period), firstAgain
	case !counts:
		p.regular = first.Add(p.period)
		p.due, p.counts = p.regular, true
	}
}

// skipTo leaves out what was due before now.
func (p *course) skipTo(now time.Time) {
	if behind := now.Sub(p.regular); behind > 0 {
		p.regular = p.regular.Add((behind + p.period - 1) / p.period * p.period)
		p.due = p.regular
	}
}

// count takes in an outcome, and tells whether its threshold is met.
func (p *course) count(o Outcome) bool {
	if p.last != o {
		p.last, p.run = o, 0
	}
	p.run++
	return p.run >= p.thresholds[o]
}

// next says when the attempt after one that has ended now is due.
func (p *course) next(o Outcome, now time.Time) {
	regular := p.regular.Add(p.period)
	if o == Success {
		p.eager = time.Time{}
	}
	if !p.eager.IsZero() {
		if again := now.Add(p.wait); again.Before(p.eager) {
			p.due, p.counts = again, false
			p.wait *= 2
			return
		}
		p.eager = time.Time{}
	}
	// Of several moments that have passed meanwhile only the last one is made up for.
	if behind := now.Sub(regular); behind > 0 {
		regular = regular.Add(behind / p.period * p.period)
	}
	p.due, p.regular, p.counts = regular, regular, true
}
