package node

import (
	"slices"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/agent/shutdown"
	"monopod.dev/monopod/internal/agent/shutdown/turns"
)

func TestShutdownPeriods(t *testing.T) {
	if got := shutdownPeriods(&v1alpha1.Agent{}); got != nil {
		t.Errorf("by default: %v", got)
	}
	a := &v1alpha1.Agent{ShutdownGracePeriod: v1alpha1.Duration{Duration: time.Minute}, ShutdownGracePeriodCriticalPods: v1alpha1.Duration{Duration: time.Second}}
	if got := shutdownPeriods(a); !slices.Equal(got, turns.TwoPhases(time.Minute, time.Second)) {
		t.Errorf("in two phases: %v", got)
	}
	a = &v1alpha1.Agent{ShutdownGracePeriodByPodPriority: []v1alpha1.ShutdownGracePeriodByPodPriority{{Priority: 9, ShutdownGracePeriodSeconds: 3}, {Priority: 0, ShutdownGracePeriodSeconds: 7}}}
	if got := shutdownPeriods(a); !slices.Equal(got, []turns.Period{{Priority: 9, Grace: 3 * time.Second}, {Priority: 0, Grace: 7 * time.Second}}) {
		t.Errorf("by priority: %v", got)
	}
}

func TestDrainPeriods(t *testing.T) {
	s := func(n int) *time.Duration { d := time.Duration(n) * time.Second; return &d }
	configured := []turns.Period{{Priority: 0, Grace: time.Minute}, {Priority: 5, Grace: time.Minute}}
	for name, c := range map[string]struct {
		configured []turns.Period
		req        protocol.DrainRequest
		want       []turns.Period
	}{
		"nothing said":        {nil, protocol.DrainRequest{}, shutdown.Default},
		"as configured":       {configured, protocol.DrainRequest{}, configured},
		"a grace":             {configured, protocol.DrainRequest{Grace: s(9)}, turns.TwoPhases(9*time.Second, 3*time.Second)},
		"of what is default":  {nil, protocol.DrainRequest{CriticalGrace: s(1)}, turns.TwoPhases(30*time.Second, time.Second)},
		"of what is set":      {configured, protocol.DrainRequest{CriticalGrace: s(1)}, turns.TwoPhases(2*time.Minute, time.Second)},
		"both":                {nil, protocol.DrainRequest{Grace: s(9), CriticalGrace: s(9)}, turns.TwoPhases(9*time.Second, 9*time.Second)},
		"at once":             {nil, protocol.DrainRequest{Grace: s(0)}, []turns.Period{{}, {Priority: turns.SystemCritical}}},
		"more than the whole": {nil, protocol.DrainRequest{Grace: s(9), CriticalGrace: s(10)}, nil},
	} {
		d := &drainer{configured: c.configured}
		got, err := d.periods(c.req)
		if !slices.Equal(got, c.want) || errdefs.IsInvalidArgument(err) != (c.want == nil) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestADrainIsTold(t *testing.T) {
	d := &drainer{Manager: shutdown.New(shutdown.Config{})}
	if told := d.Drain(); told.Active || told.Begun != nil {
		t.Errorf("before: %+v", told)
	}
	if joined, err := d.Begin(protocol.DrainRequest{}); err != nil || joined {
		t.Errorf("%v, %v", joined, err)
	}
	if joined, err := d.Begin(protocol.DrainRequest{}); err != nil || !joined {
		t.Errorf("again: %v, %v", joined, err)
	}
	if told := d.Drain(); !told.Active || told.Known || told.Finished || told.Until.Sub(*told.Begun) != 30*time.Second || told.Turn != 1 || told.Turns != 2 {
		t.Errorf("%+v", told)
	}
}
