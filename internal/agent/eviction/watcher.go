package eviction

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/kit/coalesce"
)

// A pod is measured every period, or as seldom as makes measuring it a share of the time. With the second that its containers have to end, one that takes too much
// is gone within ten seconds.
const (
	period = 8 * time.Second
	share  = 50
)

// patience is how long measuring one pod may take. What has more files than can be counted in that time cannot be held to its limits.
const patience = 2 * time.Minute

// Config is what a Watcher works with.
type Config struct {
	// Measure measures what a pod takes, as far as it is limited.
	Measure func(ctx context.Context, pod *v1.Pod, limits Limits) (*Used, error)
	Log     *slog.Logger
}

// Watcher measures pods that have limits. It is safe for concurrent use.
type Watcher struct {
	cfg    Config
	period time.Duration
	wake   chan struct{}

	mu   sync.Mutex // guards what follows
	pods map[types.UID]*watched
}

// watched is a pod with limits.
type watched struct {
	pod    *v1.Pod
	limits Limits
	due    time.Time
	// verdict is said once, poke tells that it was.
	verdict *plan.Verdict
	poke    func()
	// told: the log has that it could not be measured.
	told bool
}

// New makes a watcher, which does nothing before Run.
func New(cfg Config) *Watcher {
	return &Watcher{cfg: cfg, period: period, wake: make(chan struct{}, 1), pods: map[types.UID]*watched{}}
}

// Judge is the verdict on a pod; nil: it may go on, as far as is known. From now on it is measured, and poke called when it takes too much.
func (w *Watcher) Judge(pod *v1.Pod, poke func()) *plan.Verdict {
	limits := LimitsOf(pod)
	if limits == (Limits{}) {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.pods[pod.UID]
	if known == nil {
		known = &watched{due: w.after(0)}
		w.pods[pod.UID] = known
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
	known.pod, known.limits, known.poke = pod, limits, poke
	return known.verdict
}

// Forget measures a pod no longer.
func (w *Watcher) Forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pods, uid)
}

// Run measures until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next, due := w.next()
		if next == nil {
			timer.Stop()
		} else {
			timer.Reset(time.Until(due))
		}
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-timer.C:
			if next != nil {
				w.look(ctx, next)
			}
		}
	}
}

// next is the pod that is to be measured next; nil: none is.
func (w *Watcher) next() (next *watched, due time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pods {
		if p.verdict == nil && (next == nil || p.due.Before(due)) {
			next, due = p, p.due
		}
	}
	return next, due
}

// look measures a pod.
func (w *Watcher) look(ctx context.Context, p *watched) {
	w.mu.Lock()
	pod, limits := p.pod, p.limits
	w.mu.Unlock()
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, patience)
	used, err := w.cfg.Measure(within, pod, limits)
	cancel()
	took := time.Since(began)
	w.mu.Lock()
	defer w.mu.Unlock()
	p.due = w.after(took)
	if err != nil {
		if !p.told && ctx.Err() == nil {
			w.cfg.Log.Warn("what a pod takes of the disk can't be measured, so it is not held to its limits; it is tried again",
				"pod", pod.Namespace+"/"+pod.Name, "podUID", pod.UID, "error", err)
		}
		p.told = true
		return
	}
	p.told = false
	if p.verdict = Exceeded(pod, used); p.verdict != nil {
		p.poke()
	}
}

// after is when a pod is to be measured after it took so long.
func (w *Watcher) after(took time.Duration) time.Time {
	return time.Now().Add(coalesce.Align(max(w.period, share*took)))
}
