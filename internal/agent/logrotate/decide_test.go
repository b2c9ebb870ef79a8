package logrotate

import (
	"slices"
	"testing"
	"time"
)

func TestDecide(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	const a, b, c = "0.log.20260102-030201", "0.log.20260102-030301", "0.log.20260102-030401"
	for name, tc := range map[string]struct {
		names []string
		keep  int
		want  steps
	}{
		"the first time":            {[]string{"0.log"}, 5, steps{name: "0.log.20260102-030405"}},
		"older ones are compressed": {[]string{"0.log", c, b + ".gz"}, 5, steps{compress: []string{c}, name: "0.log.20260102-030405"}},
		"the oldest go":             {[]string{"0.log", c, b + ".gz", a + ".gz"}, 4, steps{remove: []string{a + ".gz"}, compress: []string{c}, name: "0.log.20260102-030405"}},
		"two files":                 {[]string{"0.log", c, b + ".gz"}, 2, steps{remove: []string{b + ".gz", c}, name: "0.log.20260102-030405"}},
		"what was cut short": {[]string{"0.log", c, c + ".gz", b, b + ".gz.tmp"}, 5,
			steps{remove: []string{b + ".gz.tmp", c}, compress: []string{b}, name: "0.log.20260102-030405"}},
		"somebody else's": {[]string{"0.log", "0.log.mine", "0.log.2026", "0.logs", "10.log.20260102-030201", "1.log", "0.log.tmp", "0.log.gz", "0.log.20260102-030201.bz2"}, 2,
			steps{name: "0.log.20260102-030405"}},
		"in the same second":     {[]string{"0.log", "0.log.20260102-030405"}, 5, steps{compress: []string{"0.log.20260102-030405"}, name: "0.log.20260102-030406"}},
		"the clock was put back": {[]string{"0.log", "0.log.20270101-000059.gz"}, 5, steps{name: "0.log.20270101-000100"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := decide("0.log", tc.names, tc.keep, now)
			if !slices.Equal(got.remove, tc.want.remove) || !slices.Equal(got.compress, tc.want.compress) || got.name != tc.want.name {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
	if got := newest("0.log", []string{a, c + ".gz", b, c, "0.log.mine"}); got != b {
		t.Errorf("the newest is %q", got)
	}
}
