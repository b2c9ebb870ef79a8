package ruleset

import (
	"testing"
	"time"
)

// Against somebody who flushes in a loop the repairs become rare, and who has left the rules alone is forgiven. A change of
// others' rules never waits for more than a moment. It is pure.
func TestPaceOfRepairs(t *testing.T) {
	var p pace
	now := time.Unix(1000, 0)
	if p.due(Touched).After(now) || p.due(Elsewhere).After(now) {
		t.Error("the first event has to wait")
	}
	n := 0
	for end := now.Add(time.Minute); now.Before(end); n++ {
		p.looked(now, true)
		if wait := p.due(Touched).Sub(now); wait < firstWait || wait > longestWait {
			t.Errorf("repair %d is followed by a pause of %v", n, wait)
		}
		now = p.due(Touched)
	}
	if n < 10 || n > 16 {
		t.Errorf("%d repairs in a minute", n)
	}
	now = now.Add(17*longestWait + time.Second)
	p.looked(now, true)
	if wait := p.due(Touched).Sub(now); wait != firstWait {
		t.Errorf("after a long time of peace the pause is %v", wait)
	}
	now = now.Add(time.Second)
	p.looked(now, false)
	if p.due(Touched).After(now) || p.due(Elsewhere) != now.Add(foreignPause) {
		t.Errorf("after a look: own rules %v, others' %v", p.due(Touched).Sub(now), p.due(Elsewhere).Sub(now))
	}
}
