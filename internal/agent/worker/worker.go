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
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/agent/act"
	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/objects"
	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/agent/probes"
	"monopod.dev/monopod/internal/pods"
)

// Config is what all workers share.
type Config struct {
	act.Config
	// Probes probe the pods' containers.
	Probes *probes.Manager
	// Shutdown ends the pods with the node; nil: nothing does.
	Shutdown Shutdown
	// Disk ends pods that take too much of it; nil: nobody looks.
	Disk Disk
	// Acted is told of each action that has ended, as it may have changed what the runtime holds of the pod; nil: nobody is.
	Acted func(uid types.UID)
}

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
	uid string
	log *slog.Logger

	wake    chan struct{}
	results chan result

	mu sync.Mutex // guards the wish
	wish

	// the loop's own
	view *cri.View
	act  *act.Pod
	// prior is the status computed last, published the version of the object that it was computed for.
	prior     *v1.PodStatus
	published *v1.Pod
	ongoing   map[plan.Key]*operation
	// images are the images of the containers seen last, by container ID.
	images   map[string]string
	failures map[plan.Key]plan.Failure
	// pulls are the last failures to pull, by image.
	pulls map[string]plan.Failure
	// facts are what has come of the actions.
	facts plan.Facts
	// runtime is the runtime that was seen last.
	runtime cri.Generation
	// sick says since when devices of the pod have not been healthy; failsAt is when it is to be looked again whether the pod fails by that.
	sick    map[deviceID]time.Time
	failsAt time.Time
	// tellDevices and tellWait make the events about its devices.
	tellDevices plan.DeviceTeller
	tellWait    plan.WaitTeller
	// deadline is the annotation with the pod's deadline for devices as it was seen last; nil: it was not looked at.
	deadline *string
	// verdict is how the pod is to end; once said it holds. Nil: it may go on.
	verdict *plan.Verdict
	// recalled: it was looked what an agent before this one has decided. kept: the next one will know the verdict; keepFailed: it was told that it may not.
	recalled, kept, keepFailed bool
	// stale are the volumes of which what they show has changed since they were written, by their names.
	stale map[string]bool
	// changed is when a change of these was noted last.
	changed time.Time
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
		cfg: cfg, uid: string(pod.UID), log: cfg.Log.With("pod", pod.Namespace+"/"+pod.Name, "podUID", pod.UID),
		wake: make(chan struct{}, 1), results: make(chan result),
		ongoing: map[plan.Key]*operation{}, failures: map[plan.Key]plan.Failure{}, pulls: map[string]plan.Failure{}, facts: plan.Facts{},
		stale: map[string]bool{},
		act:   act.For(cfg.Config, string(pod.UID)),
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
	pod.Name, pod.Namespace, pod.UID = ref.Name, ref.Namespace, uidOf(ref)
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
			w.finished(r)
			w.finishMore()
		}
		next, done := w.reconcile(ctx)
		if done {
			w.cfg.Status.Forget(w.podUID())
			w.cfg.Objects.Release(w.uid)
			w.cfg.Tokens.Forget(w.podUID())
			w.cfg.Ledger.Release(w.podUID())
			w.cfg.Probes.Forget(w.podUID())
			return
		}
		if next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
	}
}

// finishMore takes note of what else has ended, as volumes do that are made side by side: one look is for all of it.
func (w *Worker) finishMore() {
	for {
		select {
		case r := <-w.results:
			w.finished(r)
		default:
			return
		}
	}
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
	w.noteRuntime()
	plan.ForgetFailures(w.failures, &observed)
	w.facts.Forget(&observed)
	w.noteImages(&observed)
	due := w.follow(&wish, &observed)
	in := w.input(&wish, observed)
	res := plan.Plan(in)
	for _, k := range res.Cancel {
		w.ongoing[k].cancel()
	}
	for _, a := range res.Actions {
		w.begin(ctx, wish.pod, &a)
		in.Ongoing[a.Key()] = plan.Ongoing{StopBy: a.StopBy}
	}
	var events time.Time
	if !wish.gone {
		w.publish(wish.pod, &in)
		events = w.tellOfDevices(wish.pod, &in)
	}
	w.noteRest()
	return earlier(earlier(earlier(earlier(res.Wake, due), w.failsAt), w.answerDue(time.Now())), events), res.Done
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
		w.changed = time.Now()
		w.outdate(wish.pod)
	}
	w.noteChanges(&wish)
	return wish
}

// noteChanges lets what waited for devices or objects be tried again at once.
func (w *Worker) noteChanges(wish *wish) {
	if wish.devices {
		delete(w.failures, plan.Key{Verb: plan.GrantDevices})
	}
	for k, f := range w.failures {
		// Also a container whose devices are on record, and were not to be found when it was made: its runtime says so in words of its own.
		waits := wish.devices && (f.Reason == plan.ReasonDevicesNotReady || k.Verb == plan.StartContainer && !f.Pulls() && asksForDevices(wish.pod, k.On))
		waits = waits || k.Verb == plan.StartContainer && f.Image != "" && !stillWants(wish.pod, k.On, f.Image)
		waits = waits || wish.objects && (f.Reason == plan.ReasonCreateConfigError || f.Reason == plan.ReasonFailedVolumes || f.Pulls() && len(wish.pod.Spec.ImagePullSecrets) > 0)
		if waits {
			delete(w.failures, k)
		}
	}
}

// stillWants says that a container needs an image; its own may be changed in the specification.
func stillWants(pod *v1.Pod, container, image string) bool {
	_, c := pods.ContainerNamed(&pod.Spec, container)
	return c != nil && slices.Contains(act.ImageRefs(pod, c), image)
}

// noteImages tells that images were in use until now whose containers are gone.
func (w *Worker) noteImages(o *plan.Observed) {
	now := map[string]string{}
	for i := range o.Containers {
		now[o.Containers[i].ID] = o.Containers[i].ImageID
	}
	for id, image := range w.images {
		if _, here := now[id]; !here {
			w.cfg.Images.Used(image)
		}
	}
	w.images = now
}

func (w *Worker) input(wish *wish, observed plan.Observed) plan.Input {
	in := plan.Input{
		Pod: wish.pod, Gone: wish.gone, StopBy: w.deadlineOf(wish),
		Prior:    plan.Merge(wish.pod.Status, w.prior),
		Observed: observed,
		Ongoing:  map[plan.Key]plan.Ongoing{}, Failures: maps.Clone(w.failures),
		Facts:       w.facts,
		Stale:       maps.Clone(w.stale),
		Hashes:      map[string]string{},
		RuntimeName: w.cfg.Runtime.Identity().Name, HostIPs: w.cfg.HostIPs, Now: time.Now(),
	}
	if !asksForDevices(wish.pod, "") {
		in.Facts.Set(plan.Granted, true)
	}
	w.lookAtDevices(&in)
	w.judge(wish, &in)
	w.probe(&in)
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

// asksForDevices says whether a container of the pod does, or the one of that name.
func asksForDevices(pod *v1.Pod, container string) bool {
	for _, c := range pods.Containers(&pod.Spec) {
		if (container == "" || c.Name == container) && len(podspec.ExtendedResources(c)) > 0 {
			return true
		}
	}
	return false
}

// follow has the worker told of changes of the objects that the pod refers to, and notes when its volumes are out of
// date. It returns when the next token in them is due.
func (w *Worker) follow(wish *wish, observed *plan.Observed) time.Time {
	if w.facts.Has(plan.Released) || wish.gone || wish.pod.DeletionTimestamp != nil {
		return time.Time{}
	}
	w.cfg.Objects.Hold(w.uid, objects.References(wish.pod), w.objectsChanged)
	var due time.Time
	if len(observed.Sandboxes) > 0 { // before, they are asked for when the volumes are made
		due = w.cfg.Tokens.Due(wish.pod)
	}
	if !due.IsZero() && !time.Now().Before(due) {
		w.outdate(wish.pod)
		return time.Time{} // what comes of it has the worker look again
	}
	return due
}

// outdate notes that what the pod's volumes show has changed.
func (w *Worker) outdate(pod *v1.Pod) {
	for _, name := range w.cfg.Volumes.Following(pod) {
		w.stale[name] = true
	}
}
