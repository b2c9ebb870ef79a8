package statefulset

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/controllers/revisions"
	"monopod.dev/monopod/internal/pods"
)

// hashLabel is the label of revisions with what tells their names apart.
const hashLabel = "controller.kubernetes.io/hash"

// burst is how many pods of one set are made before it is looked at again.
const burst = 500

// State is what is known of a stateful set.
type State struct {
	Set *appsv1.StatefulSet
	// Pods are its pods.
	Pods []*corev1.Pod
	// Revisions are its revisions.
	Revisions []*appsv1.ControllerRevision
	// Claim is a claim of its namespace; nil: there is none of the name.
	Claim func(name string) *corev1.PersistentVolumeClaim
	Now   time.Time
}

// Plan is what is to be done for a stateful set, in this order.
type Plan struct {
	// Revision is what is to be done about the history.
	Revision revisions.Plan
	// Own are claims as they are to be, which have other owners than the policy wants.
	Own []Ownership
	// Supply are pods that wait for claims which are not there.
	Supply []*corev1.Pod
	// Identify are pods as they are to be, which have lost the labels of their names.
	Identify []*corev1.Pod
	// Replace are pods that have ended: who goes makes room for another one of its name.
	Replace []*corev1.Pod
	Create  []*corev1.Pod
	// Delete are pods that are too many, the highest first, or that an update is to make anew.
	Delete []*corev1.Pod
	// Forget are revisions that the history has no room for.
	Forget []*appsv1.ControllerRevision
	// Status is the set with its new status; the same object as before: nothing changes.
	Status *appsv1.StatefulSet
	// Again is after which time a pod that is ready becomes available; 0: none does.
	Again time.Duration
}

// Decide says what is to be done for a stateful set.
func Decide(s State) (Plan, error) {
	r := &round{State: s}
	if s.Set.DeletionTimestamp != nil {
		// Its revisions may be gone already, and are not made anew.
		r.current, r.update = s.Set.Status.CurrentRevision, s.Set.Status.UpdateRevision
		r.plan.Status = r.status()
		return r.plan, nil
	}
	if err := r.history(); err != nil {
		return Plan{}, err
	}
	r.sort()
	r.own()
	if r.keep() && r.shrink() {
		r.roll()
	}
	r.plan.Status = r.status()
	r.plan.Forget = r.surplus()
	return r.plan, nil
}

// owner is a set as its history knows it.
func owner(set *appsv1.StatefulSet) revisions.Owner {
	return revisions.Owner{
		Owner: set, Kind: kind, Template: &set.Spec.Template, Collisions: set.Status.CollisionCount, HashLabel: hashLabel,
	}
}

// member is a pod of a set, and which one.
type member struct {
	place int
	*corev1.Pod
}

// round is a set while it is decided about.
type round struct {
	State
	plan Plan
	// current and update are the names of the revisions that the set had before it was changed, and has now. They are the same when nothing is being updated.
	current, update string
	// before is the template of current.
	before *corev1.PodTemplateSpec
	// members are the pods that are there, with their ordinals less the set's first one, the lowest first. How many there should be is a number that a user wrote,
	// and nothing is as large as that; condemned are those of other ordinals, the highest first.
	members   []member
	condemned []*corev1.Pod
	// leaves is how many pods of the current revision the update deletes now.
	leaves int32
}

func (r *round) history() (err error) {
	if r.plan.Revision, err = revisions.Decide(owner(r.Set), r.Revisions); err != nil {
		return err
	}
	r.update, r.current, r.before = r.plan.Revision.Current.Name, r.plan.Revision.Current.Name, &r.Set.Spec.Template
	for _, old := range r.plan.Revision.Others {
		if old.Name == r.Set.Status.CurrentRevision {
			r.current = old.Name
			r.before, err = revisions.Template(old)
		}
	}
	return err
}

// sort finds out which pods are the set's members, and which are too many.
func (r *round) sort() {
	start := first(r.Set)
	for _, pod := range r.Pods {
		switch n, ok := ordinal(r.Set, pod); {
		case !ok:
		case n >= start && n < start+r.wanted():
			r.members = append(r.members, member{n - start, pod})
		default:
			r.condemned = append(r.condemned, pod)
		}
	}
	slices.SortFunc(r.members, func(a, b member) int { return a.place - b.place })
	slices.SortFunc(r.condemned, func(a, b *corev1.Pod) int {
		i, _ := ordinal(r.Set, a)
		j, _ := ordinal(r.Set, b)
		return j - i
	})
}

// wanted is how many members there are to be.
func (r *round) wanted() int { return int(*r.Set.Spec.Replicas) }

// ordered says that a pod is made or deleted only when all before it are available.
func (r *round) ordered() bool { return r.Set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement }

// keep has every member there, running and with its identity. false: nothing else is done in this round.
func (r *round) keep() bool {
	next := 0 // the place that was not looked at yet
	for _, m := range r.members {
		if !r.fill(next, m.place) || !r.mend(m) {
			return false
		}
		next = m.place + 1
	}
	return r.fill(next, r.wanted())
}

// fill makes the pods of the places from one up to, and without, another one, as far as there is room in a round, but for those whose claims are to go first.
// false: nothing else is done in it.
func (r *round) fill(from, to int) bool {
	for place := from; place < to && len(r.plan.Create) < burst; place++ {
		if !r.leftBehind(first(r.Set) + place) {
			r.plan.Create = append(r.plan.Create, r.pod(first(r.Set)+place))
		}
		if r.ordered() {
			return false
		}
	}
	return true
}

// mend replaces a member that has ended, and gives one its identity that has lost it. false: nothing else is done in this round.
func (r *round) mend(m member) bool {
	switch {
	case pods.Ended(m.Pod):
		if m.DeletionTimestamp == nil {
			r.plan.Replace = append(r.plan.Replace, m.Pod)
		}
	case r.ordered() && !(runs(m.Pod) && r.available(m.Pod)):
		if r.stuck(m) {
			r.plan.Delete = append(r.plan.Delete, m.Pod)
			if revision(m.Pod) == r.current {
				r.leaves++
			}
		}
	case !identified(m.Pod):
		pod := m.DeepCopy()
		identify(pod, first(r.Set)+m.place)
		r.plan.Identify = append(r.plan.Identify, pod)
		return true
	default:
		return true
	}
	return !r.ordered()
}

// stuck says that a member which is waited for is to be made anew, because it would be waited for in vain: it is of a template that is not wanted any more. It is
// of one that was given up before it was everywhere, or it does not run at all: with the template that a set has had for long a member that runs may get well, and
// is left to. Members that the update does not reach stay what they are.
func (r *round) stuck(m member) bool {
	strategy := &r.Set.Spec.UpdateStrategy
	if m.DeletionTimestamp != nil || revision(m.Pod) == r.update || strategy.Type == appsv1.OnDeleteStatefulSetStrategyType || pods.IsTrue(&m.Status, corev1.PodReady) {
		return false
	}
	if strategy.RollingUpdate != nil && strategy.RollingUpdate.Partition != nil && m.place < int(*strategy.RollingUpdate.Partition) {
		return false
	}
	return revision(m.Pod) != r.current || m.Status.Phase == corev1.PodPending || crashing(m.Pod)
}

// crashing says that a container of a pod has ended again and again, and is not started for some time.
func crashing(pod *corev1.Pod) bool {
	for _, all := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range all {
			if waiting := all[i].State.Waiting; waiting != nil && waiting.Reason == "CrashLoopBackOff" {
				return true
			}
		}
	}
	return false
}

// pod is the member that an ordinal is to have. Those below the partition of an update stay as they were before it.
func (r *round) pod(ordinal int) *corev1.Pod {
	strategy := &r.Set.Spec.UpdateStrategy
	old := 0
	switch {
	case strategy.RollingUpdate != nil && strategy.RollingUpdate.Partition != nil:
		old = int(*strategy.RollingUpdate.Partition)
	case strategy.RollingUpdate == nil && strategy.Type == appsv1.RollingUpdateStatefulSetStrategyType:
		old = int(r.Set.Status.CurrentReplicas)
	}
	if ordinal < first(r.Set)+old {
		return newPod(r.Set, r.before, r.current, ordinal)
	}
	return newPod(r.Set, &r.Set.Spec.Template, r.update, ordinal)
}

// shrink deletes pods that are too many. false: nothing else is done in this round.
func (r *round) shrink() bool {
	if !r.ordered() {
		for _, pod := range r.condemned {
			if pod.DeletionTimestamp == nil {
				r.plan.Delete = append(r.plan.Delete, pod)
			}
		}
		return true
	}
	if len(r.condemned) == 0 {
		return true
	}
	// All members are available here, so that the first one that is not is the lowest of these. It alone may go while it is not.
	var unavailable *corev1.Pod
	for _, pod := range r.condemned {
		if !r.available(pod) {
			unavailable = pod
		}
	}
	pod := r.condemned[0]
	if pod.DeletionTimestamp == nil && (pod == unavailable || runs(pod) && r.available(pod)) {
		r.plan.Delete = append(r.plan.Delete, pod)
	}
	return false
}

// roll deletes members that are not of the new revision, the highest first, while fewer than maxUnavailable are not available. One that is available counts
// those of the whole set; one that is not takes nothing from anybody, and waits only for those above it: so a set whose old template is broken is updated, too.
func (r *round) roll() {
	strategy := &r.Set.Spec.UpdateStrategy
	if strategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return
	}
	most, lowest := maxUnavailable(r.Set), 0
	if strategy.RollingUpdate != nil && strategy.RollingUpdate.Partition != nil {
		lowest = int(*strategy.RollingUpdate.Partition)
	}
	missing := r.wanted() - len(r.members) // of the whole set, with those that go now
	for _, m := range r.members {
		if !r.available(m.Pod) {
			missing++
		}
	}
	above, last := 0, r.wanted() // of those that were looked at, and the place of the last one
	for _, m := range slices.Backward(r.members) {
		above += last - m.place - 1
		if m.place < lowest || above >= most {
			return
		}
		last = m.place
		there := r.available(m.Pod)
		if !there {
			above++
		}
		if revision(m.Pod) == r.update || m.DeletionTimestamp != nil || pods.Ended(m.Pod) || there && missing >= most {
			continue
		}
		r.plan.Delete = append(r.plan.Delete, m.Pod)
		if revision(m.Pod) == r.current {
			r.leaves++
		}
		if there {
			missing++
			above++
		}
	}
}

// maxUnavailable is how many members an update may have missing at a time: at least one.
func maxUnavailable(set *appsv1.StatefulSet) int {
	if rolling := set.Spec.UpdateStrategy.RollingUpdate; rolling != nil && rolling.MaxUnavailable != nil {
		return max(1, owned.Share(rolling.MaxUnavailable, int(*set.Spec.Replicas), false))
	}
	return 1
}

// surplus are the revisions that the history has no room for. Those that pods are of stay besides.
func (r *round) surplus() []*appsv1.ControllerRevision {
	used := map[string]bool{r.current: true}
	for _, pod := range r.Pods {
		used[revision(pod)] = true
	}
	unused := slices.DeleteFunc(slices.Clone(r.plan.Revision.Others), func(of *appsv1.ControllerRevision) bool { return used[of.Name] })
	if limit := r.Set.Spec.RevisionHistoryLimit; limit != nil && *limit >= 0 {
		return unused[:max(0, len(unused)-int(*limit))]
	}
	return nil
}

// runs says that a pod runs and is ready.
func runs(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && pods.IsTrue(&pod.Status, corev1.PodReady)
}

// ready says that a pod has been ready for as long as the set wants.
func (r *round) ready(pod *corev1.Pod) bool {
	return pods.IsTrue(&pod.Status, corev1.PodReady) && pods.UntilAvailable(&pod.Status, r.Set.Spec.MinReadySeconds, r.Now) == 0
}

// available says that a pod is ready for long enough, and stays.
func (r *round) available(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && r.ready(pod)
}
