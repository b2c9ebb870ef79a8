// Package worker drives pods: one goroutine a pod looks at what is wanted and what is, lets plan.Plan decide, carries
// the actions out against the runtime, and tells the pod's status.
//
// It guarantees that actions of one pod never contradict each other (one at a time for each thing they work on), that a
// newer wish overtakes an older one (a deletion cancels a pull, a shorter grace a longer one), that the worker is never
// kept from looking by an action under way, and that pods are left as they are when the agent stops.
package worker

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/objects"
	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/pods"
)

// Worker drives one pod.
//
//	Update, Gone, Poke ...        results of actions      the plan's timer
//	        \                           |                     /
//	         +--> wake ---------> [ reconcile ] <------------+
//	                                    |
//	              observe (CRI) -> plan.Plan -> begin and cancel actions -> plan.Status -> status.Writer
//
// All that is below the line "the loop's own" is touched by the loop's goroutine only.
type Worker struct {
	cfg Config
	uid types.UID
	log *slog.Logger

	wake    chan struct{}
	results chan result

	mu sync.Mutex // guards the wish
	wish

	// the loop's own
	view *cri.View
	// prior is the status computed last, published the version of the object that it was computed for.
	prior     *v1.PodStatus
	published *v1.Pod
	ongoing   map[plan.Key]*operation
	retries   retries
	// facts are what has come of the actions.
	facts plan.Facts
	// images are the images of the containers seen last, by container ID.
	images  map[ids.ContainerID]string
	granted deviceWatch
	ruling  ruling
	// stale are the volumes of which what they show has changed since they were written, by their names.
	stale map[string]bool
	// probed: containers of the pod are being probed.
	probed bool
	// unseen counts observations that failed in a row.
	unseen int
	ops    sync.WaitGroup
	// rest: see Rests.
	rest atomic.Bool
}

// wish is what is wanted of the pod.
type wish struct {
	pod  *v1.Pod
	gone bool
	// stopBy is by when the pod shall have ended, once it is deleted or gone.
	stopBy time.Time
	// devices and objects say that these, or what of the pod its volumes show, have changed since they were last looked at.
	devices, objects bool
}

// New makes the worker of a pod. It does nothing before Run.
func New(cfg Config, pod *v1.Pod) *Worker {
	w := &Worker{
		cfg: cfg, uid: pod.UID, log: cfg.Log.With("pod", pod.Namespace+"/"+pod.Name, "podUID", pod.UID),
		wake: make(chan struct{}, 1), results: make(chan result),
		ongoing: map[plan.Key]*operation{}, retries: newRetries(), facts: plan.Facts{}, stale: map[string]bool{},
		granted: deviceWatch{devices: cfg.Devices, actions: cfg.Actions},
	}
	w.view = cfg.Runtime.View(w.uid, w.terminationMessage)
	w.pod = pod
	if pod.DeletionTimestamp != nil {
		// It was deleted before this agent saw it: only what is left of its grace, but for the shortest. The API writes whole seconds.
		w.stopBy = pod.DeletionTimestamp.Add(time.Second)
		if least := time.Now().Add(plan.ShortestGrace); w.stopBy.Before(least) {
			w.stopBy = least
		}
	}
	w.poke()
	return w
}

// NewOrphan makes the worker of a pod that the runtime holds and the API server does not know: it is removed.
func NewOrphan(cfg Config, ref podspec.Ref) *Worker {
	pod := &v1.Pod{}
	pod.Name, pod.Namespace, pod.UID = ref.Name, ref.Namespace, ref.UID
	w := New(cfg, pod)
	w.stopBy = time.Now().Add(plan.ShortestGrace) // nobody knows any more what it wanted
	w.Gone()
	return w
}

// Update tells of a newer version of the object.
func (w *Worker) Update(pod *v1.Pod) {
	w.mu.Lock()
	// Volumes may show these.
	if !maps.Equal(w.pod.Labels, pod.Labels) || !maps.Equal(w.pod.Annotations, pod.Annotations) {
		w.objects = true
	}
	w.pod = pod
	if pod.DeletionTimestamp != nil {
		seconds := int64(0)
		if pod.DeletionGracePeriodSeconds != nil {
			seconds = *pod.DeletionGracePeriodSeconds
		}
		// The whole grace counts from when the deletion is seen; a second deletion can only shorten it.
		by := time.Now().Add(plan.GraceOf(pods.Seconds(seconds)))
		if w.stopBy.IsZero() || by.Before(w.stopBy) {
			w.stopBy = by
		}
	}
	w.mu.Unlock()
	w.poke()
}

// Gone tells that the API server no longer has the pod. Whoever has it removed from there before it has ended does not want to wait; but where nobody was seen to
// delete it (the API server was not to be reached, or has lost it), it has the time that it wants.
func (w *Worker) Gone() {
	w.mu.Lock()
	switch by := time.Now().Add(plan.ShortestGrace); {
	case w.gone:
	case w.stopBy.IsZero():
		w.stopBy = time.Now().Add(plan.GraceOf(plan.OwnGrace(w.pod)))
	case by.Before(w.stopBy):
		w.stopBy = by
	}
	w.gone = true
	w.mu.Unlock()
	w.poke()
}

// Poke tells that the runtime's state of the pod may have changed.
func (w *Worker) Poke() { w.poke() }

// DevicesChanged tells that devices have come, gone or got free, or that their health has changed.
func (w *Worker) DevicesChanged() {
	w.mu.Lock()
	concerns := asksForDevices(w.pod, "")
	w.devices = concerns
	w.mu.Unlock()
	if concerns {
		w.poke()
	}
}

// objectsChanged tells that a ConfigMap or Secret of the pod has changed.
func (w *Worker) objectsChanged() {
	w.mu.Lock()
	w.objects = true
	w.mu.Unlock()
	w.poke()
}

func (w *Worker) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// take returns the wish, and takes the notes of changes.
func (w *Worker) take() wish {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.wish
	w.devices, w.objects = false, false
	return taken
}

// Run drives the pod until it is gone with all that it had, or ctx ends; then the pod is left as it is.
func (w *Worker) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer w.drain()
	defer cancel()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-timer.C:
		case r := <-w.results:
			if !w.ended(r) {
				continue
			}
		}
		next, done := w.reconcile(ctx)
		if done {
			w.cfg.Status.Forget(w.uid)
			w.cfg.Objects.Release(string(w.uid))
			for _, r := range w.cfg.Renewed {
				r.Forget(w.uid)
			}
			w.cfg.Ledger.Release(w.uid)
			w.cfg.Probes.Forget(w.uid)
			return
		}
		if next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
	}
}

// ended takes note of what has ended, and of what has ended since: one look is for all of it. It says whether to look: a volume that has been made is not worth
// one while others are being made, which the pod waits for.
func (w *Worker) ended(r result) (look bool) {
	for {
		w.finished(r)
		look = look || r.err != nil || r.op.action.Verb != plan.MountVolume || !w.isMounting()
		select {
		case r = <-w.results:
		default:
			return look
		}
	}
}

// isMounting says that a volume is being made.
func (w *Worker) isMounting() bool {
	for key := range w.ongoing {
		if key.Verb == plan.MountVolume {
			return true
		}
	}
	return false
}

// drain waits for the actions that were cancelled with the worker.
func (w *Worker) drain() {
	go func() {
		w.ops.Wait()
		close(w.results)
	}()
	for range w.results {
	}
}

// reconcile looks, decides and begins what is to be done. next is when to look again if nothing happens.
func (w *Worker) reconcile(ctx context.Context) (next time.Time, done bool) {
	wish := w.wished()
	observed, err := w.view.Observe(ctx)
	if err != nil {
		return w.blind(ctx, err), false
	}
	w.unseen = 0
	w.retries.noteRuntime(w.cfg.Runtime.Generation())
	plan.ForgetFailures(w.retries.failures, &observed)
	w.facts.Forget(&observed)
	w.noteImages(&observed)
	due := w.follow(&wish, &observed)
	if !asksForDevices(wish.pod, "") {
		w.facts.Set(plan.Granted, true)
	}
	in := w.input(&wish, observed)
	w.complete(&wish, &in)
	res := plan.Plan(in)
	for _, k := range res.Cancel {
		w.ongoing[k].cancel()
	}
	for _, a := range res.Actions {
		w.begin(ctx, in.Pod, &a)
		in.Ongoing[a.Key()] = plan.Ongoing{StopBy: a.StopBy}
	}
	in.Facts = maps.Clone(w.facts) // what has begun is told already
	var events time.Time
	if !wish.gone {
		w.publish(wish.pod, &in)
		events = w.granted.tell(&in, w.prior)
	}
	w.noteRest()
	return earliest(res.Wake, due, w.granted.failsAt, answerDue(w.granting(), time.Now()), events), res.Done
}

// blind is when to try to look again after the runtime could not be asked.
func (w *Worker) blind(ctx context.Context, err error) time.Time {
	w.unseen++
	if ctx.Err() == nil && w.unseen == 1 {
		w.log.Warn("the runtime can't be asked about the pod; it is tried again", "error", err)
	}
	return time.Now().Add(lookAgain(w.unseen))
}

// lookAgain is how long to wait after so many observations in a row that failed, from 1.
func lookAgain(unseen int) time.Duration {
	const first, limit = 50 * time.Millisecond, 10 * time.Second
	return min(first<<min(unseen-1, 10), limit)
}

// granting is the action that asks for the pod's devices, if that is under way.
func (w *Worker) granting() *operation { return w.ongoing[plan.Key{Verb: plan.GrantDevices}] }

// earliest is the first of these times; zero is none.
func earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		first = earlier(first, t)
	}
	return first
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// wished takes the wish with what has changed. Nobody tells of a change again, so it is noted before the runtime is asked, which may fail.
func (w *Worker) wished() wish {
	wish := w.take()
	if wish.objects {
		w.outdate(wish.pod)
	}
	w.retries.noteChanges(&wish)
	return wish
}

// noteImages tells that images were in use until now whose containers are gone.
func (w *Worker) noteImages(o *plan.Observed) {
	now := map[ids.ContainerID]string{}
	for i := range o.Containers {
		now[o.Containers[i].ID] = o.Containers[i].ImageRef
	}
	for id, image := range w.images {
		if _, here := now[id]; !here {
			w.cfg.Used(image)
		}
	}
	w.images = now
}

// input is what a decision depends on, as far as it is known without asking anybody. It shares nothing with the worker.
func (w *Worker) input(wish *wish, observed plan.Observed) plan.Input {
	in := plan.Input{
		Pod: w.cfg.Ledger.Admitted(wish.pod), Gone: wish.gone, StopBy: w.deadlineOf(wish),
		Prior:    plan.Merge(wish.pod.Status, w.prior),
		Observed: observed,
		Ongoing:  map[plan.Key]plan.Ongoing{}, Failures: maps.Clone(w.retries.failures),
		Facts:       maps.Clone(w.facts),
		Stale:       maps.Clone(w.stale),
		Hashes:      map[string]string{},
		RuntimeName: w.cfg.Runtime.Identity().Name, HostIPs: w.cfg.HostIPs, Now: time.Now(),
	}
	for k, op := range w.ongoing {
		in.Ongoing[k] = plan.Ongoing{StopBy: op.action.StopBy}
	}
	for role, c := range pods.Containers(&wish.pod.Spec) {
		if role.Main() { // no other is started again for a change
			in.Hashes[c.Name] = podspec.Hash(c)
		}
	}
	return in
}

// complete asks those who know more of the pod: of its devices, whether the node ends it, and its probes.
func (w *Worker) complete(wish *wish, in *plan.Input) {
	w.granted.look(in, w.granting())
	w.judge(wish, in)
	w.probe(in)
}

// follow has the worker told of changes of the objects that the pod refers to, and notes when its volumes are out of
// date. It returns when the next of what ends in them is due.
func (w *Worker) follow(wish *wish, observed *plan.Observed) time.Time {
	if w.facts.Has(plan.Released) || wish.gone || wish.pod.DeletionTimestamp != nil {
		return time.Time{}
	}
	w.cfg.Objects.Hold(string(w.uid), objects.References(wish.pod), w.objectsChanged)
	var due time.Time
	if len(observed.Sandboxes) > 0 { // before, they are asked for when the volumes are made
		for _, r := range w.cfg.Renewed {
			due = earlier(due, r.Due(wish.pod))
		}
	}
	if !due.IsZero() && !time.Now().Before(due) {
		w.outdate(wish.pod)
		return time.Time{} // what comes of it has the worker look again
	}
	return due
}

// outdate notes that what the pod's volumes show has changed.
func (w *Worker) outdate(pod *v1.Pod) {
	for _, name := range w.cfg.Files.Following(pod) {
		w.stale[name] = true
	}
}
