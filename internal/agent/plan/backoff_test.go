package plan

import (
	"testing"
	"time"
)

// TestRetry: what failed once is tried again at once, then it is waited longer and longer; images and devices have rules of their own.
func TestRetry(t *testing.T) {
	for name, c := range map[string]struct {
		f    Failure
		want []time.Duration // after the first failure, the second, the eighth and the fortieth
	}{
		"an action":       {Failure{Reason: ReasonFailedSandbox}, []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 6400 * time.Millisecond, time.Minute}},
		"one of no name":  {Failure{}, []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 6400 * time.Millisecond, time.Minute}},
		"a pull":          {Failure{Reason: ReasonErrImagePull}, []time.Duration{10 * time.Second, 20 * time.Second, 5 * time.Minute, 5 * time.Minute}},
		"no pull":         {Failure{Reason: ReasonErrImageNeverPull}, []time.Duration{time.Second, 2 * time.Second, time.Minute, time.Minute}},
		"devices":         {Failure{Reason: ReasonDevicesNotReady}, []time.Duration{devicesRetry, devicesRetry, devicesRetry, devicesRetry}},
		"what lasts":      {Failure{Reason: ReasonCreateConfigError, Lasts: true}, []time.Duration{10 * time.Second, 20 * time.Second, time.Minute, time.Minute}},
		"who knows of it": {Failure{Reason: ReasonDevicesNotReady, Fault: true}, []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 6400 * time.Millisecond, time.Minute}},
	} {
		for i, count := range []int{1, 2, 8, 40} {
			c.f.At, c.f.Count = now, count
			if got := c.f.RetryAt().Sub(now); got != c.want[i] {
				t.Errorf("%s, failed %d times: tried again after %s, want %s", name, count, got, c.want[i])
			}
		}
	}
}

// TestFailuresInARow: an action that fails now for this and now for that is not tried without end; one that got as far as a pull, or past it, begins anew.
func TestFailuresInARow(t *testing.T) {
	var last Failure
	for i, step := range []struct {
		reason string
		count  int
	}{
		{ReasonCreateError, 1}, {ReasonRunError, 2}, {ReasonCreateError, 3}, {ReasonErrImageNeverPull, 1}, {ReasonErrImageNeverPull, 2},
		{ReasonCreateError, 1}, {ReasonDevicesNotReady, 1}, {ReasonFailedVolumes, 1}, {"", 2},
	} {
		last = Failure{Reason: step.reason}.After(last)
		if last.Count != step.count {
			t.Errorf("step %d, %s: %d in a row, want %d", i, step.reason, last.Count, step.count)
		}
	}
}
