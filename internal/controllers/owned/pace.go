package owned

import (
	"math/rand/v2"
	"sync"
	"time"
)

// How fast pods are made, all controllers together. A node starts some forty pods a second and has room for a few hundred: whatever it can have is made at
// once, and a number that nobody meant (a million replicas) leaves the API server time for everybody else.
const (
	// reserve is how many pods can be made at once after a quiet time, and rate how many a second from then on.
	reserve = 2000
	rate    = 100
	// few is how many pods an owner lacks for which no other owner's many are waited for: kept is for those.
	few  = 10
	kept = 100
	// least is how many pods of an owner that lacks many are made at a time: all that it has are looked at each time.
	least = 25
	// plenty is from how many on one owner may have all that are left. Below, it has half of them: the others take turns.
	plenty = 500
	// breather is after which time, more or less, an owner that lacks pods is looked at again.
	breather = 500 * time.Millisecond
)

// Pace says how fast pods are made. All controllers that make some share one; nil: as fast as they can be.
//
// A new one has its whole reserve. Its methods are safe for concurrent use.
type Pace struct {
	now func() time.Time

	mu sync.Mutex
	// left is how many could be made at a time.
	left float64
	at   time.Time
}

// NewPace returns a pace.
func NewPace() *Pace { return &Pace{now: time.Now, left: reserve} }

// SlowStart makes n pods: one, then two at a time, then four times, and so on. It ends with the batch in which something failed, so that what always fails (a
// quota that is used up) is not tried hundreds of times. When there are to be no more for now it says after which time it goes on; 0: all were made.
func (p *Pace) SlowStart(n int, do func(i int) error) (again time.Duration, err error) {
	allowed := p.take(n)
	for done, batch := 0, 1; done < allowed; done, batch = done+batch, min(2*batch, atATime) {
		batch = min(batch, allowed-done)
		if err := AtOnce(batch, func(i int) error { return do(done + i) }); err != nil {
			p.put(allowed - done - batch)
			return 0, err
		}
	}
	if allowed < n {
		return breather/2 + rand.N(breather), nil // not all at the same time, nor always in the same order
	}
	return 0, nil
}

// take is how many pods of an owner that lacks so many may be made now.
func (p *Pace) take(lacks int) int {
	if p == nil {
		return lacks
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if !p.at.IsZero() {
		p.left = min(reserve, p.left+max(0, now.Sub(p.at).Seconds())*rate)
	}
	p.at = now
	left := int(p.left)
	if lacks > few {
		if left -= kept; left < plenty {
			left /= 2
		}
		if left < least {
			return 0
		}
	}
	n := min(lacks, left)
	p.left -= float64(n)
	return n
}

// put gives back what was taken and not made.
func (p *Pace) put(n int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = min(reserve, p.left+float64(n))
}
