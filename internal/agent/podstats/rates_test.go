package podstats

import (
	"testing"
	"time"
)

func TestRates(t *testing.T) {
	begin := time.Unix(1000, 0)
	at := func(after time.Duration, usage uint64) sample { return sample{begin.Add(after), usage} }
	for name, c := range map[string]struct {
		samples []sample
		want    uint64
		rated   bool
	}{
		"one":                 {[]sample{at(0, 5)}, 0, false},
		"half a processor":    {[]sample{at(0, 5e9), at(2*time.Second, 6e9)}, 5e8, true},
		"of the last two":     {[]sample{at(0, 0), at(time.Second, 9e9), at(2*time.Second, 9e9)}, 0, true},
		"idle":                {[]sample{at(0, 7), at(time.Minute, 7)}, 0, true},
		"a counter gone back": {[]sample{at(0, 7e9), at(time.Second, 8e9), at(2*time.Second, 1)}, 0, false},
		"read once only":      {[]sample{at(0, 0), at(time.Second, 1e9), at(time.Second, 1e9)}, 1e9, true},
		"too soon":            {[]sample{at(0, 0), at(time.Second, 1e9), at(time.Second+time.Millisecond, 2e9), at(3*time.Second, 3e9)}, 1e9, true},
	} {
		var r rates
		for _, s := range c.samples {
			r = r.next(map[string]sample{"id": s})
		}
		if got := r["id"]; got.rate != c.want || got.rated != c.rated {
			t.Errorf("%s: %d, %v, want %d, %v", name, got.rate, got.rated, c.want, c.rated)
		}
	}
	if r := (rates{"gone": {}}).next(nil); len(r) > 0 {
		t.Errorf("what is gone is remembered: %v", r)
	}
}
