package keeper

import (
	"testing"
	"time"
)

func TestSilence(t *testing.T) {
	type tick struct {
		late     time.Duration
		answered bool
		threads  string
	}
	const asleep, stopped, blocked, traced, running = "SSSS", "TTTT", "SDSS", "tttt", "RSSS"
	times := func(n int, one tick) (all []tick) {
		for range n {
			all = append(all, one)
		}
		return all
	}
	for name, c := range map[string]struct {
		ticks []tick
		at    int // the tick at which it hangs; 0: none
	}{
		"answers":              {times(100, tick{answered: true}), 0},
		"asleep":               {times(100, tick{threads: asleep}), 6},
		"stopped":              {times(100, tick{threads: stopped}), 6},
		"a loop":               {times(100, tick{threads: running}), 6},
		"in the kernel":        {times(100, tick{threads: blocked}), 30},
		"under a debugger":     {times(100, tick{threads: traced}), 0},
		"a busy machine":       {times(100, tick{late: 6 * time.Second, threads: running}), 0},
		"slow":                 {append(append(times(5, tick{threads: asleep}), tick{answered: true}), times(5, tick{threads: asleep})...), 0},
		"blocked, then asleep": {append(times(25, tick{threads: blocked}), times(5, tick{threads: asleep})...), 26},
	} {
		var s silence
		at := 0
		for i, one := range c.ticks {
			if s.tick(10*time.Second, one.late, one.answered, []byte(one.threads)) {
				at = i + 1
				break
			}
		}
		if at != c.at {
			t.Errorf("%s: it hangs at tick %d, want %d", name, at, c.at)
		}
	}
}
