package owned

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
)

// clock is a pace with a time of its own.
func clock() (*Pace, *time.Time) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := NewPace()
	p.now = func() time.Time { return now }
	return p, &now
}

// makes lets an owner that lacks n pods make some, and is how many it made.
func makes(t *testing.T, p *Pace, n int) int {
	t.Helper()
	var made atomic.Int64
	again, err := p.SlowStart(n, func(int) error { made.Add(1); return nil })
	if err != nil || (again > 0) != (int(made.Load()) < n) {
		t.Fatalf("%d of %d were made, again %v, %v", made.Load(), n, again, err)
	}
	return int(made.Load())
}

func TestPace(t *testing.T) {
	p, now := clock()
	const many = 1_000_000
	if n := makes(t, p, 1000); n != 1000 {
		t.Errorf("of 1,000 pods %d were made at once", n)
	}
	if n := makes(t, p, many); n != reserve-1000-kept {
		t.Errorf("of the rest of the reserve a million got %d", n)
	}
	made := 0
	for range 120 { // a minute of two that want a million each, and of one that wants three each half second
		*now = now.Add(breather)
		made += makes(t, p, many) + makes(t, p, many)
		if n := makes(t, p, 3); n != 3 {
			t.Fatalf("who wants three pods got %d", n)
		}
		made += 3
	}
	if made < 58*rate || made > 62*rate {
		t.Errorf("in a minute %d pods were made, want about %d", made, 60*rate)
	}
	*now = now.Add(time.Hour)
	if n := makes(t, p, many); n != reserve-kept {
		t.Errorf("after a quiet hour %d were made at once", n)
	}
}

// No owner of many keeps another one from ever getting some.
func TestPaceTurns(t *testing.T) {
	p, now := clock()
	makes(t, p, 10*reserve)
	var made [5]int
	for range 200 {
		*now = now.Add(breather)
		for _, i := range rand.Perm(len(made)) {
			made[i] += makes(t, p, 10*reserve)
		}
	}
	for i, n := range made {
		if n < 1000 {
			t.Errorf("owner %d got %d pods in 100 s: %v", i, n, made)
		}
	}
}

// What fails takes no more of the reserve than it was tried.
func TestPaceFailure(t *testing.T) {
	p, _ := clock()
	failure := errors.New("no")
	for range 500 {
		if _, err := p.SlowStart(500, func(int) error { return failure }); !errors.Is(err, failure) {
			t.Fatal(err)
		}
	}
	if n := makes(t, p, 1000); n != 1000 {
		t.Errorf("after 500 failures %d of 1,000 were made at once", n)
	}
	if n := makes(t, nil, 10*reserve); n != 10*reserve {
		t.Errorf("without a pace %d were made", n)
	}
}

func TestAtOnce(t *testing.T) {
	var running, most, all atomic.Int64
	err := AtOnce(1000, func(i int) error {
		n := running.Add(1)
		defer running.Add(-1)
		for {
			if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		all.Add(1)
		if i >= 7 {
			return errors.New("later")
		}
		if i == 5 {
			return errors.New("five")
		}
		return nil
	})
	if err == nil || err.Error() != "five" || all.Load() != 1000 || most.Load() > atATime {
		t.Errorf("%v; %d were done, %d at a time", err, all.Load(), most.Load())
	}
}
