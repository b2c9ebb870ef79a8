package relist

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// world plays a runtime to a pace. Its clock moves from one thing that is due to the next.
type world struct {
	*testing.T
	p   *Pace
	now time.Time
	// lists and opens are when these were asked for, since the start.
	lists, opens []time.Duration
	closed       int
	// What a list shows, and what becomes of a stream that is opened.
	changed []types.UID
	stream  func()
}

var start = time.Unix(1000, 0)

func newWorld(t *testing.T) *world {
	return &world{T: t, p: New(start), now: start, stream: func() {}}
}

// until lets time pass.
func (w *world) until(d time.Duration) {
	w.Helper()
	for range 10000 {
		next := w.p.Next()
		if next.IsZero() || next.After(start.Add(d)) {
			w.now = start.Add(d)
			return
		}
		if next.After(w.now) {
			w.now = next
		}
		a := w.p.Due(w.now)
		if a.Close {
			w.closed++
		}
		if a.Open {
			w.opens = append(w.opens, w.now.Sub(start))
			w.stream()
		}
		if a.List {
			w.lists = append(w.lists, w.now.Sub(start))
			w.p.Listed(w.now, w.changed)
			w.changed = nil
		}
	}
	w.Fatal("it never rests")
}

func (w *world) opened()     { w.p.Opened(w.now) }
func (w *world) ends(as End) { w.p.Ended(w.now, as) }

func (w *world) mode(want Mode) {
	w.Helper()
	if got := w.p.Mode(); got != want {
		w.Errorf("after %v it goes by %v, want %v", w.now.Sub(start), got, want)
	}
}

func (w *world) listedAt(seconds ...int) {
	w.Helper()
	var want []time.Duration
	for _, s := range seconds {
		want = append(want, time.Duration(s)*time.Second)
	}
	if !slices.Equal(w.lists, want) {
		w.Errorf("listed at %v, want %v", w.lists, want)
	}
	w.lists = nil
}

// A stream that lives: lists become rarer until it has told something, and then are the net only.
func TestLives(t *testing.T) {
	w := newWorld(t)
	w.stream = w.opened
	w.until(35 * time.Second)
	w.mode(Trying)
	w.listedAt(0, 1, 3, 7, 15, 25, 35)
	w.p.Told(w.now, "u")
	w.mode(Events)
	w.until(20 * time.Minute)
	w.mode(Events)
	w.listedAt(335, 635, 935)
	if len(w.opens) != 1 || w.closed != 0 {
		t.Errorf("opened at %v, closed %d times", w.opens, w.closed)
	}
}

// A stream that tells at once is followed by a list all the same, for what was before it began to be recorded.
func TestSettles(t *testing.T) {
	w := newWorld(t)
	w.stream = w.opened
	w.until(100 * time.Millisecond)
	w.p.Told(w.now, "u")
	w.until(4 * time.Minute)
	if len(w.lists) != 2 || w.lists[1] > 2*time.Second {
		t.Errorf("listed at %v", w.lists)
	}
}

// No stream, or one that ends at once: a list a second, and the stream is tried again, less and less often.
func TestNoStream(t *testing.T) {
	for name, c := range map[string]struct {
		end  End
		open bool
		want []time.Duration
	}{
		"missing": {Missing, true, []time.Duration{0, 30 * time.Second, 60 * time.Second}},
		"ends at once": {Over, true, []time.Duration{0, 250 * time.Millisecond, 750 * time.Millisecond, 1750 * time.Millisecond, 3750 * time.Millisecond,
			7750 * time.Millisecond, 15750 * time.Millisecond, 31750 * time.Millisecond, 61750 * time.Millisecond}},
		"refused": {Over, false, []time.Duration{0, 250 * time.Millisecond, 750 * time.Millisecond, 1750 * time.Millisecond, 3750 * time.Millisecond,
			7750 * time.Millisecond, 15750 * time.Millisecond, 31750 * time.Millisecond, 61750 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.stream = func() {
				if c.open {
					w.opened()
				}
				w.ends(c.end)
			}
			w.until(62 * time.Second)
			w.mode(Listing)
			if !slices.Equal(w.opens, c.want) {
				t.Errorf("opened at %v, want %v", w.opens, c.want)
			}
			for i := 1; i < len(w.lists); i++ {
				if gap := w.lists[i] - w.lists[i-1]; gap > Every {
					t.Errorf("between two lists are %v", gap)
				}
			}
			// It was replaced by one that has a stream.
			w.lists, w.opens, w.stream = nil, nil, w.opened
			w.p.Reconnected(w.now)
			w.until(63 * time.Second)
			if len(w.opens) != 1 {
				t.Errorf("opened at %v", w.opens)
			}
			w.mode(Trying)
			w.until(70 * time.Second)
			if len(w.lists) < 7 {
				t.Errorf("a stream that was doubted is believed before it has told anything: listed at %v", w.lists)
			}
			w.p.Told(w.now, "u")
			w.mode(Events)
			w.lists = nil
			w.until(3 * time.Minute)
			if len(w.lists) > 1 {
				t.Errorf("with events it lists at %v", w.lists)
			}
		})
	}
}

// A stream that is open and says nothing of what lists show is not believed.
func TestSilent(t *testing.T) {
	t.Run("from the start", func(t *testing.T) {
		w := newWorld(t)
		w.stream = w.opened
		w.until(20 * time.Second)
		w.changed = []types.UID{"u"}
		w.until(28 * time.Second) // listed at 25
		if w.closed != 1 || len(w.opens) != 2 {
			t.Errorf("closed %d times, opened at %v", w.closed, w.opens)
		}
		w.lists = nil
		w.until(40 * time.Second)
		if len(w.lists) < 12 {
			t.Errorf("listed at %v", w.lists)
		}
		w.p.Told(w.now, "u")
		w.mode(Events)
	})
	t.Run("of what the agent does", func(t *testing.T) {
		w := newWorld(t)
		w.stream = w.opened
		w.until(10 * time.Second)
		w.p.Told(w.now, "u")
		w.until(60 * time.Second)
		w.lists = nil
		w.p.Made(w.now)
		w.changed = []types.UID{"v"}
		w.until(68 * time.Second)
		if w.closed != 1 || w.lists[0] != 65*time.Second {
			t.Errorf("closed %d times, listed at %v", w.closed, w.lists)
		}
	})
	t.Run("late", func(t *testing.T) {
		w := newWorld(t)
		w.stream = w.opened
		w.until(10 * time.Second)
		w.p.Told(w.now, "u")
		w.changed = []types.UID{"v"}
		w.until(11500 * time.Millisecond) // the list that follows the first word
		w.changed = []types.UID{"v"}
		w.p.early = w.now
		w.until(12 * time.Second)
		w.p.Told(w.now, "v")
		w.until(20 * time.Second)
		if w.closed != 0 {
			t.Error("a stream that comes behind a list is closed")
		}
	})
	t.Run("but of nothing that was told", func(t *testing.T) {
		w := newWorld(t)
		w.stream = w.opened
		w.until(10 * time.Second)
		w.p.Told(w.now, "u")
		w.until(60 * time.Second)
		began := w.now
		w.p.Told(w.now.Add(time.Millisecond), "v")
		w.p.Made(began)
		w.changed = []types.UID{"v"}
		w.lists = nil
		w.until(10 * time.Minute)
		if w.closed != 0 || len(w.lists) > 2 {
			t.Errorf("closed %d times, listed at %v", w.closed, w.lists)
		}
	})
}

// A broken connection is nobody's fault: the stream is opened again soon, and believed as before.
func TestBreaks(t *testing.T) {
	w := newWorld(t)
	w.stream = w.opened
	w.until(10 * time.Second)
	w.p.Told(w.now, "u")
	w.until(100 * time.Second)
	w.ends(Broken)
	w.mode(Listing)
	w.lists = nil
	w.until(101 * time.Second)
	if w.mode(Trying); w.lists[0] != 100*time.Second {
		t.Errorf("listed at %v", w.lists)
	}
	w.until(130 * time.Second)
	if len(w.lists) > 8 {
		t.Errorf("listed at %v", w.lists)
	}
	// What happened while there was no stream is no fault of the next one.
	w.ends(Broken)
	w.changed = []types.UID{"v"}
	w.until(140 * time.Second)
	if w.closed != 0 {
		t.Error("the stream is closed for what it could not know")
	}
}

// A list that fails is taken again.
func TestListFails(t *testing.T) {
	p := New(start)
	if a := p.Due(start); !a.List || !a.Open {
		t.Errorf("%+v", a)
	}
	if next := p.Next(); !next.IsZero() {
		t.Errorf("two lists at once, at %v", next)
	}
	p.ListFailed(start.Add(5 * time.Second))
	if next := p.Next(); next != start.Add(6*time.Second) {
		t.Errorf("the next one at %v", next)
	}
}

func TestDiff(t *testing.T) {
	before := List{"s": {UID: "a", State: 0}, "c": {UID: "a", State: 1, Telling: true}, "d": {UID: "b", State: 1, Telling: true}, "e": {UID: "c", State: 0}}
	now := List{"s": {UID: "a", State: 0}, "c": {UID: "a", State: 2, Telling: true}, "d": {UID: "b", State: 1, Telling: true}, "f": {UID: "d", State: 0}}
	changed, telling := Diff(before, now)
	if !slices.Equal(changed, []types.UID{"a", "c", "d"}) || !slices.Equal(telling, []types.UID{"a"}) {
		t.Errorf("%v, %v", changed, telling)
	}
	if changed, telling := Diff(now, now); len(changed)+len(telling) != 0 {
		t.Errorf("%v, %v", changed, telling)
	}
}
