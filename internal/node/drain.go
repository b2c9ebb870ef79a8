package node

import (
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/admin"
	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/agent/shutdown"
	"monopod.dev/monopod/internal/agent/shutdown/turns"
)

// newShutdown makes what ends the pods with the machine, or when it is asked to.
func newShutdown(o Options) *shutdown.Manager {
	return shutdown.New(shutdown.Config{Periods: shutdownPeriods(&o.Config.Agent), Log: o.Log.With("role", "agent")})
}

// shutdownPeriods are how long pods have when the machine stops; none: it does not wait.
func shutdownPeriods(a *v1alpha1.Agent) (periods []turns.Period) {
	for _, p := range a.ShutdownGracePeriodByPodPriority {
		periods = append(periods, turns.Period{Priority: p.Priority, Grace: time.Duration(p.ShutdownGracePeriodSeconds) * time.Second})
	}
	if len(periods) > 0 {
		return periods
	}
	return turns.TwoPhases(a.ShutdownGracePeriod.Duration, a.ShutdownGracePeriodCriticalPods.Duration)
}

// drainer ends the pods for those who ask over the administration socket.
type drainer struct {
	*shutdown.Manager
	// configured are how long they have if nothing else is asked for.
	configured []turns.Period
}

var _ admin.Drainer = &drainer{}

func newDrainer(o Options, m *shutdown.Manager) *drainer {
	return &drainer{Manager: m, configured: shutdownPeriods(&o.Config.Agent)}
}

// Begin begins to end the pods.
func (d *drainer) Begin(req protocol.DrainRequest) (joined bool, err error) {
	periods, err := d.periods(req)
	if err != nil {
		return false, err
	}
	return !d.Manager.Begin(shutdown.Drain, periods), nil
}

// periods are those of the request, or of the configuration. A third of a time is for critical pods, where nobody says otherwise.
func (d *drainer) periods(req protocol.DrainRequest) ([]turns.Period, error) {
	if req.Grace == nil && req.CriticalGrace == nil {
		if len(d.configured) > 0 {
			return d.configured, nil
		}
		return shutdown.Default, nil
	}
	all := turns.Total(shutdown.Default)
	if len(d.configured) > 0 {
		all = turns.Total(d.configured)
	}
	if req.Grace != nil {
		all = *req.Grace
	}
	critical := all / 3
	if req.CriticalGrace != nil {
		critical = *req.CriticalGrace
	}
	if critical > all {
		return nil, fmt.Errorf("%s is %s, which is more than %s, of which it is a part: %w", protocol.CriticalGraceParam, critical, all, errdefs.ErrInvalidArgument)
	}
	return []turns.Period{{Priority: 0, Grace: all - critical}, {Priority: turns.SystemCritical, Grace: critical}}, nil
}

// Drain is how far that is.
func (d *drainer) Drain() protocol.Drain {
	s := d.Status()
	told := protocol.Drain{Active: s.Active, Finished: s.Finished, Turn: s.Turn, Turns: s.Turns, Known: s.Known, Pods: []protocol.DrainPod{}}
	if s.Active {
		told.Begun, told.Until = &s.Begun, &s.Until
	}
	for _, p := range s.Pods {
		told.Pods = append(told.Pods, protocol.DrainPod{Namespace: p.Namespace, Name: p.Name, Priority: p.Priority, Ended: p.Ended})
	}
	return told
}
