// Package abandon undoes what clients have given up.
//
// A client whose call ends before the answer does not know what became of it. It asks again, and gets what the call has made
// (package flight); or it never does, and then what was made would stay for ever, known to nobody who wants it. A
// Ledger remembers such objects, by their ids, until somebody claims them: any call by the id, or a repeated one, does.
// What nobody has claimed after a time is undone. A crash is a way to go without an answer, too: so each object is
// expected to be claimed from the moment it is there, in the transaction that makes it.
//
// It guarantees:
//   - that an object is abandoned, or nobody has got it yet, is on disk, and survives a restart; the time begins anew then, so that
//     clients which were away as long as the server are not late;
//   - what was claimed once is never undone, in whatever order the calls come. The one exception is a crash within a moment
//     (lazy) of the first claim, after which it is to be claimed once more: that moment saves every answer a write to the disk;
//   - what is being undone cannot be claimed any more: Claim tells when that is over;
//   - nobody waits for the disk but who has given something up, claims it after that, or undoes it: each for what is its own.
package abandon

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"monopod.dev/monopod/internal/kit/flight"
	"monopod.dev/monopod/internal/state"
)

// Default is how long an abandoned object waits for its client.
const Default = 5 * time.Minute

// again is how long it takes until an undo that has failed is tried again.
const again = time.Minute

// lazy is how long the first claim of an object may stay off the disk. Those of many objects are written together then, after
// the calls that follow an answer at once.
const lazy = 200 * time.Millisecond

// ErrInUse is Undo's answer for an object that somebody uses, although its claim could not be stored.
var ErrInUse = errors.New("somebody uses it")

// Record is what is stored of an object that nobody has claimed (JSON, by its id).
type Record struct {
	// At is when it was given up; zero: its call is not known to have been answered.
	At time.Time `json:"at,omitzero"`
}

// Undo removes an object, or returns ErrInUse. One that is gone is no error.
type Undo[ID ~string] func(ctx context.Context, id ID) error

// Config is what a Ledger works with.
type Config struct {
	DB    *state.DB
	Table string
	// After is how long an object waits; 0 is Default.
	After time.Duration
	Log   *slog.Logger
}

// Ledger is safe for concurrent use.
type Ledger[ID ~string] struct {
	cfg   Config
	table state.Table[Record]
	wake  chan struct{} // holds a token when there is an earlier time to wake at

	mu      sync.RWMutex
	objects map[ID]*object // by id
	// stale are the ids whose records are to be deleted, at the time flush, or earlier.
	stale map[ID]bool
	flush time.Time
}

// object is the state of one: expected --Claim--> claimed, or expected --Abandon--> abandoned --Claim--> claimed, or abandoned --its
// time has come--> undoing --> (none).
type object struct {
	claimed  bool
	expected bool          // what is stored says that nobody has got it yet
	due      time.Time     // set: abandoned
	undoing  chan struct{} // set: it is being undone; closed when that is over

	disk sync.Mutex // held by settle, and taken before Ledger.mu, which guards all else
}

// New reads what is stored. known are the ids of the objects that are there; what is stored of others is forgotten by Run.
func New[ID ~string](cfg Config, known []ID) (*Ledger[ID], error) {
	if cfg.After == 0 {
		cfg.After = Default
	}
	l := &Ledger[ID]{cfg: cfg, table: state.NewTable[Record](cfg.DB, cfg.Table), wake: make(chan struct{}, 1), objects: map[ID]*object{}, stale: map[ID]bool{}}
	abandoned, err := l.table.List()
	for _, id := range known {
		o := &object{claimed: true}
		if _, ok := abandoned[string(id)]; ok {
			o = &object{due: time.Now().Add(cfg.After)}
		}
		l.objects[id] = o
	}
	for key := range abandoned {
		if id := ID(key); l.objects[id] == nil {
			l.objects[id] = &object{due: time.Now()}
		}
	}
	return l, err
}

// Expect stores with the transaction that makes an object visible that nobody has got it yet. Call Expected when that has
// succeeded, and before anybody can claim the object.
func (l *Ledger[ID]) Expect(tx *state.Tx, id ID) error {
	return l.table.PutTx(tx, string(id), Record{})
}

// Expected takes in what Expect has stored.
func (l *Ledger[ID]) Expected(id ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.objects[id] == nil {
		l.objects[id] = &object{expected: true}
	}
}

// Abandon says that the call which made an object was given up. It does nothing to one that somebody has claimed.
func (l *Ledger[ID]) Abandon(id ID) {
	if o := l.giveUp(id); o != nil {
		l.cfg.Log.Info("the client that asked for it has gone; it is undone if nobody claims it", "table", l.cfg.Table, "id", id, "in", l.cfg.After)
		l.settle(id, o)
		l.signal()
	}
}

// giveUp marks an object as abandoned, and returns it if it has become so.
func (l *Ledger[ID]) giveUp(id ID) *object {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.objects[id]
	if o == nil {
		o = &object{}
		l.objects[id] = o
	}
	if o.claimed || o.undoing != nil || !o.due.IsZero() {
		return nil
	}
	o.due, o.expected = time.Now().Add(l.cfg.After), false
	return o
}

// Claim says that somebody knows of an object. When it comes too late, because the object is being undone, it returns a channel
// that is closed when that is over, and else nil.
func (l *Ledger[ID]) Claim(id ID) (undoing <-chan struct{}) {
	l.mu.RLock()
	o := l.objects[id]
	claimed := o != nil && o.claimed
	l.mu.RUnlock()
	if claimed {
		return nil
	}
	o, undoing = l.claim(id)
	if o != nil {
		l.cfg.Log.Info("what was given up is claimed", "table", l.cfg.Table, "id", id)
		l.settle(id, o)
	}
	return undoing
}

// claim marks an object as claimed, and returns it if it was abandoned until then. One that is being undone it leaves so.
func (l *Ledger[ID]) claim(id ID) (abandoned *object, undoing <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.objects[id]
	switch {
	case o == nil:
		l.objects[id] = &object{claimed: true}
		return nil, nil
	case o.undoing != nil:
		return nil, o.undoing
	}
	if o.expected {
		l.unstoreLater(id)
	}
	if !o.due.IsZero() {
		abandoned = o
	}
	o.claimed, o.expected, o.due = true, false, time.Time{}
	return abandoned, nil
}

// Group and Work are for what makes an object and returns its id.
type (
	Group[ID ~string] = flight.Group[ID, struct{}]
	Work[ID ~string]  = flight.Work[ID, struct{}]
)

// Join joins the work and claims what it has made: the caller gets an object that will not be undone. One that is being undone is
// waited for, and made anew. What the work has made is abandoned when nobody waits for it any more; w.GivenUp is set here.
func (l *Ledger[ID]) Join(ctx context.Context, g *Group[ID], w Work[ID]) (ID, error) {
	w.GivenUp = l.Abandon
	for {
		id, err := g.Join(ctx, w, nil)
		if err != nil {
			return "", err
		}
		undoing := l.Claim(id)
		if undoing == nil {
			return id, nil
		}
		select {
		case <-undoing:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// Undoing is nil unless an object is being undone; then it is closed when that is over.
func (l *Ledger[ID]) Undoing(id ID) <-chan struct{} {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if o := l.objects[id]; o != nil && o.undoing != nil {
		return o.undoing
	}
	return nil
}

// Forget ends what is known of an object that is removed.
func (l *Ledger[ID]) Forget(id ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.objects[id]
	delete(l.objects, id)
	if o != nil && (o.expected || !o.due.IsZero() && o.undoing == nil) {
		l.unstoreLater(id) // one without an object is forgotten after the next start
	}
}

// Run undoes what nobody claims, until ctx ends.
func (l *Ledger[ID]) Run(ctx context.Context, undo Undo[ID]) error {
	var undos sync.WaitGroup
	defer func() { undos.Wait(); l.unstoreStale(time.Time{}) }()
	for {
		l.unstoreStale(time.Now())
		due, next := l.takeDue(time.Now())
		for id, o := range due {
			undos.Go(func() { l.undo(ctx, id, o, undo) })
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// takeDue marks what is to be undone now, and says in how long the next one is due.
func (l *Ledger[ID]) takeDue(now time.Time) (due map[ID]*object, next time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	due, next = map[ID]*object{}, time.Hour
	if len(l.stale) > 0 {
		next = l.flush.Sub(now)
	}
	for id, o := range l.objects {
		switch {
		case o.due.IsZero() || o.undoing != nil:
		case !o.due.After(now):
			o.undoing = make(chan struct{})
			due[id] = o
		default:
			next = min(next, o.due.Sub(now))
		}
	}
	return due, next
}

func (l *Ledger[ID]) undo(ctx context.Context, id ID, o *object, undo Undo[ID]) {
	l.cfg.Log.Info("undoing what a client has given up and nobody claimed", "table", l.cfg.Table, "id", id)
	err := undo(ctx, id)
	l.mu.Lock()
	switch {
	case err == nil:
		o.due = time.Time{}
	case errors.Is(err, ErrInUse):
		o.claimed, o.due = true, time.Time{}
	default:
		l.cfg.Log.Warn("it could not be undone, and is tried again", "id", id, "in", again, "error", err)
		o.due = time.Now().Add(again)
	}
	l.mu.Unlock()
	if err == nil || errors.Is(err, ErrInUse) {
		l.settle(id, o)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	close(o.undoing)
	o.undoing = nil
	if err == nil {
		delete(l.objects, id)
	}
	l.signal()
}

// settle makes what is stored of an object say what is known of it: that it is abandoned, or nothing. It waits for the disk, so mu is not
// held. What is known then counts, and the calls for one object wait for each other: so whoever changes what is known, and settles, finds it
// stored, or something newer. What cannot be stored does no harm while this process lives; what stays is deleted after the next start: such
// an object is claimed again, or gone.
func (l *Ledger[ID]) settle(id ID, o *object) {
	o.disk.Lock()
	defer o.disk.Unlock()
	l.mu.RLock()
	abandoned := !o.due.IsZero()
	l.mu.RUnlock()
	if abandoned {
		if err := l.table.Put(string(id), Record{At: time.Now()}); err != nil {
			l.cfg.Log.Error("that a client has given something up could not be stored", "table", l.cfg.Table, "id", id, "error", err)
		}
	} else if err := l.table.Delete(string(id)); err != nil {
		l.cfg.Log.Error("that something is abandoned no more could not be stored", "table", l.cfg.Table, "id", id, "error", err)
	}
}

// unstoreLater lets Run delete what is stored of an object. The caller holds mu.
func (l *Ledger[ID]) unstoreLater(id ID) {
	if len(l.stale) == 0 {
		l.flush = time.Now().Add(lazy)
		l.signal()
	}
	l.stale[id] = true
}

// unstoreStale deletes what unstoreLater was told, in one transaction, if it is time to; the zero time is always.
func (l *Ledger[ID]) unstoreStale(now time.Time) {
	l.mu.Lock()
	ids := slices.Collect(maps.Keys(l.stale))
	if len(ids) == 0 || !now.IsZero() && now.Before(l.flush) {
		l.mu.Unlock()
		return
	}
	clear(l.stale)
	l.mu.Unlock()
	err := l.cfg.DB.Update(func(tx *state.Tx) error {
		for _, id := range ids {
			if err := l.table.DeleteTx(tx, string(id)); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		return
	}
	l.cfg.Log.Error("that objects were claimed could not be stored, and is tried again", "table", l.cfg.Table, "objects", len(ids), "in", again, "error", err)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		l.stale[id] = true
	}
	l.flush = time.Now().Add(again)
}

// signal makes Run look again.
func (l *Ledger[ID]) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}
