package relist

import "k8s.io/apimachinery/pkg/types"

import "time"

// Mode is how the agent learns of changes.
type Mode int

// The modes. The zero value is the first one.
const (
	// Listing: by lists, because there is no stream.
	Listing Mode = iota
	// Trying: by lists, which become rarer; the stream is open and has not told anything yet.
	Trying
	// Events: by the stream; lists are the net below it.
	Events
)

// String is the mode in words.
func (m Mode) String() string {
	return [...]string{"lists", "lists, until the stream of events tells something", "events"}[m]
}

// How often, and how long.
const (
	// Every is the time between two lists where there are no events.
	Every = time.Second
	// Net is the time between two lists below a stream that is believed.
	Net = 5 * time.Minute
	// settle is when a list is taken after a stream was opened: CRI does not tell when the runtime has begun to record events for us.
	settle = time.Second
	// tryMax is the longest time between two lists while a stream has not told anything.
	tryMax = 10 * time.Second
	// patience is for how long a change of the agent's own may go untold before a list is taken.
	patience = 5 * time.Second
	// grace is for how long a stream may come behind a list.
	grace = 2 * time.Second
	// The first time and the longest one until a stream is opened again.
	firstDelay = 250 * time.Millisecond
	maxDelay   = 30 * time.Second
)

// End is why a stream ended.
type End int

// The reasons.
const (
	// Over: the runtime ended it, with an error or without one.
	Over End = iota
	// Missing: the runtime has none.
	Missing
	// Broken: the connection broke, which says nothing about the stream.
	Broken
)

// Acts are what is to be done now.
type Acts struct {
	// List everything, and tell Listed or ListFailed.
	List bool
	// Open the stream, and tell Opened when the runtime was asked for it, and Ended when it has ended.
	Open bool
	// Close the stream: nothing is to be told of it any more.
	Close bool
}

// Pace is the state of one runtime's observation. It is for one goroutine.
type Pace struct {
	mode Mode
	// doubted: the last stream told nothing, or not all, so that lists do not become rarer before the next one has told something.
	doubted bool
	// streaming: a stream is open or is being opened; open: since opened.
	streaming, open bool
	opened, told    time.Time
	delay           time.Duration

	// When the next list is due by the mode, and when by a change that was not told; zero: not. listing: one is being taken.
	list, early time.Time
	listing     bool
	gap         time.Duration
	// When the stream is opened again; zero: not.
	reopen time.Time

	// When the present list and the one before it were begun.
	began, before time.Time
	// The pods that the stream told of since the list before the last one; any: of some whose name it did not say.
	toldNow, toldBefore told
	// suspects are pods that a list showed changed and the stream has not told of until judge.
	suspects map[types.UID]bool
	judge    time.Time
}

type told struct {
	pods map[types.UID]bool
	any  bool
}

// New is the pace of a runtime of which nothing is known: it is listed, and its stream opened, at once.
func New(now time.Time) *Pace { return &Pace{list: now, reopen: now, delay: firstDelay, gap: Every} }

// Mode is how changes are learnt of now.
func (p *Pace) Mode() Mode { return p.mode }

// Next is when Due has something to do; zero: when something happens.
func (p *Pace) Next() time.Time {
	var next time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if !p.listing {
		sooner(p.list)
		sooner(p.early)
	}
	sooner(p.reopen)
	sooner(p.judge)
	return next
}

// Due is what is to be done now. It counts as begun.
func (p *Pace) Due(now time.Time) (a Acts) {
	due := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	if due(p.judge) {
		p.judge = time.Time{}
		if len(p.suspects) > 0 && p.streaming {
			a.Close = true
			p.ended(now, Over)
		}
	}
	if due(p.reopen) {
		a.Open = true
		p.reopen, p.streaming = time.Time{}, true
	}
	if !p.listing && (due(p.list) || due(p.early)) {
		a.List = true
		p.listing, p.list, p.early = true, time.Time{}, time.Time{}
		p.before, p.began = p.began, now
	}
	return a
}

// Opened says that the runtime was asked for its stream.
func (p *Pace) Opened(now time.Time) {
	p.open, p.opened, p.mode, p.gap = true, now, Trying, Every
	p.toldNow, p.toldBefore = told{}, told{}
	p.listBy(now.Add(settle))
}

// Told says that the stream told of a pod; uid empty: of one that it did not name.
func (p *Pace) Told(now time.Time, uid types.UID) {
	if !p.open {
		return
	}
	p.told, p.early, p.doubted, p.delay = now, time.Time{}, false, firstDelay
	if uid == "" {
		p.toldNow.any = true
		p.suspects = nil
	} else {
		if p.toldNow.pods == nil {
			p.toldNow.pods = map[types.UID]bool{}
		}
		p.toldNow.pods[uid] = true
		delete(p.suspects, uid)
	}
	if p.mode == Events {
		return
	}
	p.mode = Events
	if p.list = now.Add(Net); p.listing || p.began.Before(p.opened.Add(settle)) {
		// What was before the stream began to be recorded is still to be found.
		p.list = now.Add(settle)
	}
}

// Ended says that the stream has ended.
func (p *Pace) Ended(now time.Time, why End) {
	if p.streaming {
		p.ended(now, why)
	}
}

func (p *Pace) ended(now time.Time, why End) {
	lived := p.open && now.Sub(p.opened) >= maxDelay
	hasTold := p.open && !p.told.Before(p.opened)
	muted := len(p.suspects) > 0
	if lived && !muted {
		p.delay = firstDelay
	}
	p.doubted = p.doubted || muted || why == Missing || why == Over && !lived && !hasTold
	if why == Missing {
		p.delay = maxDelay
	}
	p.reopen, p.delay = now.Add(p.delay), min(2*p.delay, maxDelay)
	p.mode, p.streaming, p.open = Listing, false, false
	p.suspects, p.judge, p.early = nil, time.Time{}, time.Time{}
	p.listBy(now)
}

// Reconnected says that there is a new connection to the runtime: it may be another one, with a stream.
func (p *Pace) Reconnected(now time.Time) {
	p.delay = firstDelay
	if !p.streaming {
		p.reopen = now
	}
}

// Made says that the agent itself has changed something, by a call that it began at that time. A stream has to tell of that.
func (p *Pace) Made(began time.Time) {
	if p.open && p.early.IsZero() && p.told.Before(began) {
		p.early = began.Add(patience)
	}
}

// Listed says that everything was listed. changed are the pods that have changed since the list before in a way that a stream has to tell of.
func (p *Pace) Listed(now time.Time, changed []types.UID) {
	p.listing = false
	// A list that was begun before the stream was recorded shows what nobody had to tell.
	if p.open && !p.before.Before(p.opened.Add(settle)) && !p.toldNow.any && !p.toldBefore.any {
		for _, uid := range changed {
			if p.toldNow.pods[uid] || p.toldBefore.pods[uid] {
				continue
			}
			if p.suspects == nil {
				p.suspects = map[types.UID]bool{}
			}
			p.suspects[uid] = true
			if p.judge.IsZero() {
				p.judge = now.Add(grace)
			}
		}
	}
	p.toldBefore, p.toldNow = p.toldNow, told{}
	p.again(now)
}

// ListFailed says that it could not be listed.
func (p *Pace) ListFailed(now time.Time) {
	p.listing = false
	// What it should have shown is the next one's: that one is held against the last that succeeded.
	p.began = p.before
	p.list = now.Add(Every)
}

// again sets when the next list is due by the mode.
func (p *Pace) again(now time.Time) {
	switch {
	case p.mode == Listing || p.doubted:
		p.listBy(now.Add(Every))
	case p.mode == Trying:
		p.listBy(now.Add(p.gap))
		p.gap = min(2*p.gap, tryMax)
	default:
		p.listBy(now.Add(Net))
	}
}

// listBy has a list taken at that time at the latest.
func (p *Pace) listBy(t time.Time) {
	if p.list.IsZero() || t.Before(p.list) {
		p.list = t
	}
}
