package abandon

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"monopod.dev/monopod/internal/state"
)

// world is a ledger with a record of what it has undone.
type world struct {
	*testing.T
	db   *state.DB
	fail error
	hold chan struct{} // set: an undo waits for it

	mu     sync.Mutex
	undone []string
}

func open(t *testing.T) *world {
	t.Helper()
	db, _, err := state.Open(state.Config{Path: filepath.Join(t.TempDir(), "state.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return &world{T: t, db: db}
}

// run opens the ledger and runs it until the test, or the bubble, ends.
func (w *world) run(ctx context.Context, known ...string) *Ledger[string] {
	l, err := New(Config{DB: w.db, Table: "t", Log: slog.New(slog.DiscardHandler)}, known)
	if err != nil {
		w.Fatal(err)
	}
	undo := func(_ context.Context, id string) error {
		if w.hold != nil {
			<-w.hold
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.fail != nil {
			return w.fail
		}
		w.undone = append(w.undone, id)
		return nil
	}
	go func() { _ = l.Run(ctx, undo) }()
	return l
}

func (w *world) want(undone ...string) {
	w.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Sort(w.undone); !slices.Equal(w.undone, undone) {
		w.Errorf("undone %v, want %v", w.undone, undone)
	}
}

func (w *world) stored() []string {
	w.Helper()
	all, err := state.NewTable[Record](w.db, "t").List()
	if err != nil {
		w.Fatal(err)
	}
	return slices.Sorted(maps.Keys(all))
}

func TestWhatNobodyClaimsIsUndone(t *testing.T) {
	w := open(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l := w.run(ctx, "old")
		for _, id := range []string{"old", "a", "b", "claimed before"} {
			if id == "claimed before" {
				l.Claim(id)
			}
			l.Abandon(id)
		}
		time.Sleep(Default - time.Second)
		w.want()
		if l.Claim("b") != nil {
			t.Error("b cannot be claimed")
		}
		l.Abandon("b") // by another caller, that had joined
		time.Sleep(2 * time.Second)
		w.want("a")
		l.Abandon("later")
		time.Sleep(Default + time.Second)
		w.want("a", "later")
		if got := w.stored(); len(got) != 0 {
			t.Errorf("stored %v", got)
		}
	})
}

func TestItSurvivesARestart(t *testing.T) {
	w := open(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := w.run(ctx)
		l.Abandon("a")
		l.Abandon("b")
		l.Abandon("removed")
		l.Abandon("claimed")
		l.Claim("claimed")
		time.Sleep(Default - time.Second)
		cancel()
		synctest.Wait()
		if got := w.stored(); !slices.Equal(got, []string{"a", "b", "removed"}) {
			t.Errorf("stored %v", got)
		}
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		l = w.run(ctx, "a", "b", "claimed", "other")
		w.want("removed") // nothing is left of it
		time.Sleep(Default - time.Second)
		w.want("removed")
		l.Claim("b")
		time.Sleep(2 * time.Second)
		w.want("a", "removed")
		if got := w.stored(); len(got) != 0 {
			t.Errorf("stored %v", got)
		}
	})
}

func TestUndoIsTriedAgain(t *testing.T) {
	w := open(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l := w.run(ctx)
		w.fail = errors.New("disk full")
		l.Abandon("a")
		time.Sleep(Default + time.Second)
		w.want()
		if got := w.stored(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("stored %v", got)
		}
		w.mu.Lock()
		w.fail = nil
		w.mu.Unlock()
		time.Sleep(again)
		w.want("a")
		if len(l.objects) != 0 {
			t.Errorf("left %v", l.objects)
		}
	})
}

// TestClaimComesTooLate: who claims while an object is being undone is told when that is over.
func TestClaimComesTooLate(t *testing.T) {
	w := open(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l := w.run(ctx)
		w.hold = make(chan struct{})
		l.Abandon("a")
		time.Sleep(Default + time.Second)
		undoing := l.Claim("a")
		if undoing == nil {
			t.Fatal("claimed what is being undone")
		}
		close(w.hold)
		<-undoing
		w.want("a")
		if l.Claim("a") != nil {
			t.Error("another object of that id cannot be claimed")
		}
	})
}

// TestInUse: what turns out to be in use is claimed by that.
func TestInUse(t *testing.T) {
	w := open(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l := w.run(ctx)
		w.fail = ErrInUse
		l.Abandon("a")
		time.Sleep(2*Default + again)
		l.Abandon("a")
		if got := w.stored(); len(got) != 0 || l.Claim("a") != nil {
			t.Errorf("stored %v", got)
		}
		w.want()
	})
}

// expect makes an object whose call is not answered yet.
func (w *world) expect(l *Ledger[string], id string) {
	w.Helper()
	if err := w.db.Update(func(tx *state.Tx) error { return l.Expect(tx, id) }); err != nil {
		w.Fatal(err)
	}
	l.Expected(id)
}

// TestCrashBeforeTheAnswer: what a client has yet to get is undone when the server died meanwhile, and only then.
func TestCrashBeforeTheAnswer(t *testing.T) {
	w := open(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := w.run(ctx)
		for _, id := range []string{"slow", "claimed", "removed", "given up", "late"} {
			w.expect(l, id)
		}
		l.Claim("claimed")
		l.Forget("removed")
		time.Sleep(lazy + time.Millisecond)
		synctest.Wait()
		if got := w.stored(); !slices.Equal(got, []string{"given up", "late", "slow"}) {
			t.Errorf("stored %v", got)
		}
		l.Abandon("given up")
		time.Sleep(Default + time.Second)
		w.want("given up")
		l.Claim("late")
		cancel()
		synctest.Wait()
		if got := w.stored(); !slices.Equal(got, []string{"slow"}) {
			t.Errorf("an orderly end left %v", got)
		}
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		w.run(ctx, "slow", "claimed", "late")
		time.Sleep(Default + time.Second)
		w.want("given up", "slow")
		if got := w.stored(); len(got) != 0 {
			t.Errorf("stored %v", got)
		}
	})
}

// hang makes the disk hang until the returned function is called: what is to be stored waits.
func (w *world) hang() (release func()) {
	hangs, ends, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		if err := w.db.Update(func(*state.Tx) error { close(hangs); <-ends; return nil }); err != nil {
			w.Error(err)
		}
	}()
	<-hangs
	return sync.OnceFunc(func() { close(ends); <-ended })
}

// within fails the test if f waits for somebody who waits for the disk.
func (w *world) within(what string, f func()) {
	w.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		w.Fatal(what, "waits for the disk")
	}
}

// until waits until the ledger knows something.
func (w *world) until(l *Ledger[string], what string, known func() bool) {
	w.Helper()
	w.within("to know that "+what, func() {
		for found := false; !found; runtime.Gosched() {
			l.mu.RLock()
			found = known()
			l.mu.RUnlock()
		}
	})
}

// TestASlowDiskHoldsUpNobodyElse: while clients' ends, and the claims of what was given up, are stored, all others go on; what is
// stored at last is what was said at last.
func TestASlowDiskHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	w := open(t)
	l, err := New(Config{DB: w.db, Table: "t", Log: slog.New(slog.DiscardHandler)}, []string{"known"})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"given up", "given up and claimed", "claimed", "removed"} {
		w.expect(l, id)
	}
	l.Abandon("claimed late")
	release := w.hang()
	defer release()
	var waiting sync.WaitGroup
	waiting.Go(func() { l.Abandon("given up") })
	waiting.Go(func() { l.Abandon("given up and claimed") })
	waiting.Go(func() { l.Claim("claimed late") })
	w.until(l, "all is under way", func() bool {
		return !l.objects["given up"].due.IsZero() && !l.objects["given up and claimed"].due.IsZero() && l.objects["claimed late"].claimed
	})
	waiting.Go(func() { l.Claim("given up and claimed") })
	w.until(l, "it is claimed meanwhile", func() bool { return l.objects["given up and claimed"].claimed })
	w.within("somebody else", func() {
		l.Expected("new")
		for _, id := range []string{"known", "claimed", "new", "unknown"} {
			if l.Claim(id) != nil {
				t.Errorf("%s is being undone", id)
			}
		}
		if l.Undoing("given up") != nil {
			t.Error("what was given up just now is being undone")
		}
		l.Forget("removed")
		l.takeDue(time.Now())
	})
	release()
	waiting.Wait()
	l.unstoreStale(time.Time{})
	if got := w.stored(); !slices.Equal(got, []string{"given up"}) {
		t.Errorf("stored %v", got)
	}
}

// TestTheEndOfAnUndo: it is over when nothing is stored of it any more, and while that is on its way nobody else waits.
func TestTheEndOfAnUndo(t *testing.T) {
	t.Parallel()
	for _, undo := range []error{nil, ErrInUse} {
		w := open(t)
		begun, end := make(chan struct{}), make(chan struct{})
		l, err := New[string](Config{DB: w.db, Table: "t", After: 1, Log: slog.New(slog.DiscardHandler)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		l.Abandon("a")
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			_ = l.Run(ctx, func(context.Context, string) error {
				close(begun)
				<-end
				return undo
			})
		})
		<-begun
		release := w.hang()
		defer release()
		over := l.Undoing("a")
		close(end)
		w.until(l, "the undo has ended", func() bool { return l.objects["a"].due.IsZero() })
		w.within("somebody else", func() { l.Claim("b") })
		select {
		case <-over:
			t.Error("it is over before it is stored")
		default:
		}
		release()
		<-over
		if got := w.stored(); len(got) != 0 {
			t.Errorf("stored %v", got)
		}
		if undoing := l.Undoing("a"); undoing != nil {
			t.Error("it is being undone when that is over")
		}
		cancel()
		running.Wait()
	}
}
