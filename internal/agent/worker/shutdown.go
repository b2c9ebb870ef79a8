package worker

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/plan"
)

// deadlineOf is by when a pod that is deleted or gone shall have ended.
func (w *Worker) deadlineOf(wish *wish) time.Time {
	if w.cfg.Shutdown == nil {
		return wish.stopBy
	}
	return w.cfg.Shutdown.StopBy(wish.pod, wish.stopBy)
}

// Pod is the newest version of the object. It is safe for concurrent use.
func (w *Worker) Pod() *v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pod
}

// Rests says that nothing of the pod runs, or will run again, and that it has given back what it had. It is safe for concurrent use.
func (w *Worker) Rests() bool { return w.rest.Load() }

func (w *Worker) noteRest() {
	ended := w.prior != nil && over(w.prior.Phase) && w.facts.Has(plan.Released)
	rest := len(w.ongoing) == 0 && (ended || w.facts.Has(plan.Deleted))
	w.rest.Store(rest)
	if rest && w.cfg.Shutdown != nil {
		w.cfg.Shutdown.Rested()
	}
}

// over says of a phase that it is the last one.
func over(phase v1.PodPhase) bool { return phase == v1.PodSucceeded || phase == v1.PodFailed }
