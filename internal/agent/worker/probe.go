package worker

import (
	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/agent/probes"
	"monopod.dev/monopod/internal/kit/ids"
)

// probe says which of the pod's containers are to be probed, and takes what was found.
func (w *Worker) probe(in *plan.Input) {
	containers := plan.ToProbe(in)
	if len(containers) == 0 && !w.probed {
		return
	}
	ending := in.Gone || in.Pod.DeletionTimestamp != nil || in.Verdict != nil
	targets := make([]probes.Target, 0, len(containers))
	for i := range containers {
		c := &containers[i]
		targets = append(targets, probes.Target{
			Pod: in.Pod, Container: c.Spec, ID: c.ID, IP: c.IP, StartedAt: c.StartedAt, Started: c.Started, Terminating: ending,
		})
	}
	w.probed = len(targets) > 0
	w.cfg.Probes.Set(w.uid, targets, w.poke)
	in.Probed = map[ids.ContainerID]plan.Probed{}
	for id, f := range w.cfg.Probes.Facts(w.uid) {
		found := plan.Probed{Started: answers[f.Started], Ready: answers[f.Ready]}
		if f.Failed != nil {
			found.Failed, found.Why, found.Grace = true, f.Failed.Message, f.Failed.Grace
		}
		in.Probed[id] = found
	}
}

var answers = map[probes.Known]plan.Answer{probes.Yes: plan.Yes, probes.No: plan.No}
