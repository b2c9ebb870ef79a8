package stats

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRates(t *testing.T) {
	const none = ^uint64(0)
	type step struct {
		at    time.Duration
		usage uint64
		want  uint64
	}
	second := uint64(time.Second)
	for name, steps := range map[string][]step{
		"two looks":                         {{0, 0, none}, {2 * time.Second, second, second / 2}},
		"not from the boot":                 {{time.Hour, 5 * second, none}},
		"looks that follow each other":      {{0, 0, none}, {time.Millisecond, 1e6, none}, {2 * time.Millisecond, 2e6, none}},
		"a quick one keeps the window":      {{0, 0, none}, {time.Second, second, second}, {1500 * time.Millisecond, second, 2 * second / 3}},
		"then it moves on":                  {{0, 0, none}, {time.Second, second, second}, {3 * time.Second, second, 0}, {4 * time.Second, 2 * second, second}},
		"a quick one does not end a window": {{0, 0, none}, {900 * time.Millisecond, second, none}, {time.Second, second, second}},
		"nobody has asked for long":         {{0, 0, none}, {maxWindow + 1, second, none}, {maxWindow + 1 + 2*time.Second, 2 * second, second / 2}},
		"the counter begins anew":           {{0, 5 * second, none}, {2 * time.Second, second, none}, {4 * time.Second, 2 * second, second / 2}},
		"the clock goes back":               {{time.Hour, second, none}, {0, 2 * second, none}},
		"a hundred processors for an hour":  {{0, 0, none}, {time.Minute, 100 * 60 * second, 100 * second}},
		"a counter that runs full":          {{0, 0, none}, {time.Second, none - 1, none - 1}},
	} {
		var w window
		epoch := time.Unix(1e9, 0)
		for i, s := range steps {
			got, ok := w.add(sample{epoch.Add(s.at), s.usage})
			if ok != (s.want != none) || ok && got != s.want {
				t.Errorf("%s: look %d: %d, %v, want %d", name, i, got, ok, s.want)
			}
		}
	}
}
