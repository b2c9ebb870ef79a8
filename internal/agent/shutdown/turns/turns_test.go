package turns

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

var start = time.Unix(1000, 0)

func at(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

func TestTwoPhases(t *testing.T) {
	for _, c := range []struct {
		all, critical time.Duration
		want          []Period
	}{
		{0, 0, nil},
		{0, 10 * time.Second, nil},
		{30 * time.Second, 10 * time.Second, []Period{{0, 20 * time.Second}, {SystemCritical, 10 * time.Second}}},
		{30 * time.Second, 0, []Period{{0, 30 * time.Second}, {SystemCritical, 0}}},
		{30 * time.Second, time.Minute, []Period{{0, 0}, {SystemCritical, 30 * time.Second}}},
	} {
		if got := TwoPhases(c.all, c.critical); !slices.Equal(got, c.want) {
			t.Errorf("%s, %s: %v, want %v", c.all, c.critical, got, c.want)
		}
	}
}

func TestSqueeze(t *testing.T) {
	periods := TwoPhases(30*time.Second, 10*time.Second)
	if got := Squeeze(periods, 30*time.Second); !slices.Equal(got, periods) {
		t.Errorf("into as much: %v", got)
	}
	got := Squeeze(periods, 3*time.Second)
	if fmt.Sprint(got[0].Grace.Round(time.Millisecond), got[1].Grace.Round(time.Millisecond)) != "2s 1s" || Total(got) > 3*time.Second {
		t.Errorf("into a tenth: %v", got)
	}
	if got := Squeeze(periods, -1); Total(got) != 0 {
		t.Errorf("into nothing: %v", got)
	}
	if Total(periods) != 30*time.Second {
		t.Error("what was squeezed is changed")
	}
}

// TestTheCourse: which turn it is after what has happened, one step after the other.
func TestTheCourse(t *testing.T) {
	three := []Period{{1000, 10 * time.Second}, {0, 20 * time.Second}, {SystemCritical, 5 * time.Second}} // in no order
	type step struct {
		at      float64
		running []int32
		turn    int
		wake    float64 // 0: none
		until   float64
	}
	for name, steps := range map[string][]step{
		"all have time to the end": {
			{0, []int32{0, 1000, SystemCritical}, 0, 20, 35},
			{19.9, []int32{0, 1000, SystemCritical}, 0, 20, 35},
			{20, []int32{0, 1000, SystemCritical}, 1, 30, 35},
			{30, []int32{0, 1000, SystemCritical}, 2, 35, 35},
			{35, []int32{0, 1000, SystemCritical}, 3, 0, 35},
		},
		"who has ended holds nobody": {
			{0, []int32{0, 1000, SystemCritical + 1000}, 0, 20, 35},
			{2, []int32{1000, SystemCritical + 1000}, 1, 12, 17},
			{3, []int32{SystemCritical + 1000}, 2, 8, 8},
			{4, nil, 3, 0, 4},
		},
		"one of an earlier turn holds nobody":       {{0, []int32{1, SystemCritical}, 0, 20, 35}, {20, []int32{1, SystemCritical}, 2, 25, 25}},
		"a turn without pods takes no time":         {{0, []int32{SystemCritical}, 2, 5, 5}},
		"no pods":                                   {{0, nil, 3, 0, 0}},
		"who looks late has the course where it is": {{0, []int32{0, 1000, 2000}, 0, 20, 35}, {32, []int32{0, 1000, 2000}, 3, 0, 32}},
		"the least and the most":                    {{0, []int32{math.MinInt32}, 0, 20, 35}, {1, []int32{math.MaxInt32}, 2, 6, 6}},
		"between two it is the lower one":           {{0, []int32{999}, 0, 20, 35}, {1, []int32{SystemCritical - 1}, 1, 11, 16}},
	} {
		c := Begin(three, start)
		for _, s := range steps {
			var wake time.Time
			c, wake = c.Next(s.running, at(s.at))
			want := time.Time{}
			if s.wake != 0 {
				want = at(s.wake)
			}
			if c.Turn() != s.turn || !wake.Equal(want) || c.Over() != (s.turn == 3) || !c.Until().Equal(at(s.until)) || !c.Begun().Equal(start) {
				t.Errorf("%s, after %vs: turn %d, wake %s, until %s, over %v; want %+v", name, s.at, c.Turn(), wake.Sub(start), c.Until().Sub(start), c.Over(), s)
			}
		}
	}
}

func TestEnds(t *testing.T) {
	c := Begin(TwoPhases(30*time.Second, 10*time.Second), start)
	c, _ = c.Next([]int32{0}, start)
	if since, grace, ends := c.Ends(0, time.Minute); !ends || !since.Equal(start) || grace != 20*time.Second {
		t.Errorf("a pod with a long grace: %s, %s, %v", since, grace, ends)
	}
	if _, grace, ends := c.Ends(-5, 3*time.Second); !ends || grace != 3*time.Second {
		t.Errorf("a pod with a short grace: %s, %v", grace, ends)
	}
	if _, _, ends := c.Ends(SystemCritical, time.Second); ends {
		t.Error("a critical pod ends at once")
	}
	c, _ = c.Next(nil, at(4))
	if since, grace, ends := c.Ends(SystemCritical+1000, time.Minute); !ends || !since.Equal(at(4)) || grace != 10*time.Second {
		t.Errorf("a critical pod: %s, %s, %v", since.Sub(start), grace, ends)
	}
	if since, _, _ := c.Ends(0, time.Minute); !since.Equal(start) {
		t.Error("an earlier turn has begun at another time")
	}
}
