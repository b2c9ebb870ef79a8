package daemonset

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/controllers/revisions"
	"monopod.dev/monopod/internal/pods"
)

// burst is how many pods of one set are made, and deleted, before it is looked at again.
const burst = 250

// State is what is known of a daemon set.
type State struct {
	Set   *appsv1.DaemonSet
	Nodes []*corev1.Node
	// Pods are its pods.
	Pods []*corev1.Pod
	// Revisions are its revisions.
	Revisions []*appsv1.ControllerRevision
	// Patience is for how long a pod that has failed on a node is let be.
	Patience func(node string) time.Duration
	Now      time.Time
}

// Plan is what is to be done for a daemon set, in this order.
type Plan struct {
	// Revision is what is to be done about the history.
	Revision revisions.Plan
	Create   []*corev1.Pod
	Delete   []Deletion
	// Forget are revisions that the history has no room for.
	Forget []*appsv1.ControllerRevision
	// Status is the set with its new status; the same object as before: nothing changes.
	Status *appsv1.DaemonSet
	// Again is after which time a pod becomes available, or one that has failed is deleted; 0: none does.
	Again time.Duration
}

// Deletion is a pod that goes.
type Deletion struct {
	Pod *corev1.Pod
	// Ended is the phase in which the pod ended by itself, which is why it goes; empty: it goes for another reason.
	Ended corev1.PodPhase
}

// Decide says what is to be done for a daemon set.
func Decide(s State) (Plan, error) {
	if s.Set.DeletionTimestamp != nil { // its history may be gone already, by which alone its status could be told
		return Plan{Status: s.Set}, nil
	}
	r := &round{State: s}
	if err := r.history(); err != nil {
		return Plan{}, err
	}
	var lost []*corev1.Pod
	r.sites, lost = sites(r.template, s.Nodes, s.Pods)
	r.maxSurge, r.maxUnavailable = bounds(s.Set, r.sites)
	for _, at := range r.sites {
		r.keep(at)
	}
	for _, pod := range lost { // the binder cannot bind them, and nobody else ends them
		r.delete(pod)
	}
	if len(r.plan.Create)+len(r.plan.Delete) == 0 && s.Set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		if r.maxSurge == 0 {
			r.replace()
		} else {
			r.surge()
		}
	}
	r.plan.Create, r.plan.Delete = r.plan.Create[:min(burst, len(r.plan.Create))], r.plan.Delete[:min(burst, len(r.plan.Delete))]
	r.plan.Status = r.status()
	r.plan.Forget = r.surplus()
	return r.plan, nil
}

// owner is a set as its history knows it.
func owner(set *appsv1.DaemonSet) revisions.Owner {
	return revisions.Owner{
		Owner: set, Kind: kind, Template: &set.Spec.Template, Collisions: set.Status.CollisionCount, HashLabel: appsv1.ControllerRevisionHashLabelKey,
	}
}

// round is a set while it is decided about.
type round struct {
	State
	plan Plan
	// hashes are the labels of pods that are of the set's template, generation is another one of them.
	hashes     map[string]bool
	generation string
	// template is what its pods are made from.
	template *corev1.PodTemplateSpec
	sites    []*site
	// maxSurge and maxUnavailable are on how many nodes there may be two pods, or none that is available, while pods are made anew.
	maxSurge, maxUnavailable int
}

func (r *round) history() (err error) {
	if r.plan.Revision, err = revisions.Decide(owner(r.Set), r.Revisions); err != nil {
		return err
	}
	current := hash(r.plan.Revision.Current)
	r.hashes = map[string]bool{current: true}
	for _, other := range r.plan.Revision.Others {
		if revisions.Same(other, &r.Set.Spec.Template) {
			r.hashes[hash(other)] = true
		}
	}
	r.generation, _ = generation(r.Set)
	r.template = daemon(r.Set, current)
	return nil
}

// hash is by which label pods are of a revision.
func hash(revision *appsv1.ControllerRevision) string {
	if label := revision.Labels[appsv1.ControllerRevisionHashLabelKey]; label != "" {
		return label
	}
	return revision.Name
}

// updated says whether a pod is of the set's template.
func (r *round) updated(pod *corev1.Pod) bool {
	if r.hashes[pod.Labels[appsv1.ControllerRevisionHashLabelKey]] {
		return true
	}
	generation, ok := generation(r.Set)
	return ok && pod.Labels[generationLabel] == generation
}

// bounds are maxSurge and maxUnavailable for as many nodes as are to have a pod.
func bounds(set *appsv1.DaemonSet, all []*site) (surge, unavailable int) {
	rolling := set.Spec.UpdateStrategy.RollingUpdate
	if set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType || rolling == nil {
		return 0, 1
	}
	wanted := 0
	for _, at := range all {
		if at.run {
			wanted++
		}
	}
	if surge, unavailable = owned.Share(rolling.MaxSurge, wanted, true), owned.Share(rolling.MaxUnavailable, wanted, true); surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, unavailable
}

// surges says that a node may have two pods for a while. With no node that is to have one it may, too, where a share of the nodes is asked for.
func (r *round) surges() bool {
	rolling := r.Set.Spec.UpdateStrategy.RollingUpdate
	if r.Set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType || rolling == nil || rolling.MaxSurge == nil {
		return false
	}
	return owned.Share(rolling.MaxSurge, 1, true) > 0
}

// keep has a node have the pod that it is to have, and no other ones.
func (r *round) keep(at *site) {
	switch {
	case at.run && len(at.pods) == 0:
		r.create(at)
	case at.stay:
		running, failing := r.running(at)
		r.prune(at, running, failing)
	default:
		for _, pod := range at.pods {
			r.delete(pod)
		}
	}
}

// running are the pods of a node that neither go nor have ended. Those that have ended are deleted; failing: not yet, because they fail time and again.
func (r *round) running(at *site) (running []*corev1.Pod, failing bool) {
	for _, pod := range at.pods {
		switch {
		case pod.DeletionTimestamp != nil:
		case pod.Status.Phase == corev1.PodFailed:
			if left := r.Patience(at.name); left > 0 {
				failing = true
				r.again(left)
				continue
			}
			r.plan.Delete = append(r.plan.Delete, Deletion{pod, corev1.PodFailed})
		case pod.Status.Phase == corev1.PodSucceeded:
			r.plan.Delete = append(r.plan.Delete, Deletion{pod, corev1.PodSucceeded})
		default:
			running = append(running, pod)
		}
	}
	return running, failing
}

// prune deletes the pods of a node that are too many.
func (r *round) prune(at *site, running []*corev1.Pod, failing bool) {
	switch {
	case !r.surges():
		for _, pod := range running[min(1, len(running)):] {
			r.delete(pod)
		}
		return
	case len(running) == 0:
		if at.run && !failing { // who is ending is not waited for
			r.create(at)
		}
		return
	case len(running) == 1:
		return
	}
	// Two may be there: one of the template that is not available yet, and one of the template before that is ready.
	var young, old *corev1.Pod
	for _, pod := range running {
		switch updated := r.updated(pod); {
		case updated && young == nil:
			young = pod
		case !updated && old == nil:
			old = pod
		default:
			r.delete(pod)
		}
	}
	if young != nil && old != nil && (!pods.IsTrue(&old.Status, corev1.PodReady) || r.available(young)) {
		r.delete(old)
	}
}

func (r *round) create(at *site) {
	r.plan.Create = append(r.plan.Create, newPod(r.Set, r.template, at.name))
}

// delete deletes a pod that does not go already.
func (r *round) delete(pod *corev1.Pod) {
	if pod.DeletionTimestamp == nil {
		r.plan.Delete = append(r.plan.Delete, Deletion{Pod: pod})
	}
}

// again has the set looked at after a time.
func (r *round) again(after time.Duration) {
	if r.plan.Again == 0 || after < r.plan.Again {
		r.plan.Again = after
	}
}

// available says that a pod has been ready for as long as the set wants.
func (r *round) available(pod *corev1.Pod) bool {
	if !pods.IsTrue(&pod.Status, corev1.PodReady) {
		return false
	}
	left := pods.UntilAvailable(&pod.Status, r.Set.Spec.MinReadySeconds, r.Now)
	if left > 0 {
		r.again(left)
	}
	return left == 0
}

// surplus are the revisions that the history has no room for, and those of the set's own template that are there twice. Those that pods are of stay.
func (r *round) surplus() (surplus []*appsv1.ControllerRevision) {
	used := map[string]bool{}
	for _, pod := range r.Pods {
		used[pod.Labels[appsv1.ControllerRevisionHashLabelKey]] = true
	}
	more := 0
	if limit := r.Set.Spec.RevisionHistoryLimit; limit != nil {
		more = len(r.plan.Revision.Others) - int(*limit)
	}
	for _, old := range r.plan.Revision.Others {
		if !used[hash(old)] && (len(surplus) < more || r.hashes[hash(old)]) {
			surplus = append(surplus, old)
		}
	}
	return surplus
}
