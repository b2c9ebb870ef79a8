package deployment

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
)

// State is what is known of a deployment.
type State struct {
	Deployment *appsv1.Deployment
	// Sets are its replica sets.
	Sets []*appsv1.ReplicaSet
	// Running says whether a replica set has pods that have not ended, those that are ending among them.
	Running func(*appsv1.ReplicaSet) bool
	Now     time.Time
}

// Plan is what is to be done for a deployment, in this order.
type Plan struct {
	// Create is the replica set of the template, if there is none yet.
	Create *appsv1.ReplicaSet
	// Change are replica sets as they are to be.
	Change []Change
	// Delete are replica sets that the history has no room for.
	Delete []*appsv1.ReplicaSet
	// Status is the deployment with its new status and revision; the same object as before: nothing changes.
	Status *appsv1.Deployment
	// Again is after which time the deployment is to be looked at again, because it may make no progress; 0: when something changes.
	Again time.Duration
}

// Change is a replica set that is to be another one than it is.
type Change struct {
	To *appsv1.ReplicaSet
	// From is how many replicas it had before.
	From int32
}

// Decide says what is to be done for a deployment.
func Decide(s State) Plan {
	r := newRollout(s)
	if s.Deployment.DeletionTimestamp != nil {
		return Plan{Status: r.status(false)}
	}
	scaled := r.scaled()
	switch {
	case s.Deployment.Spec.Paused, scaled:
		r.annotateNew()
		r.scale()
	case s.Deployment.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
		r.recreate()
	default:
		r.roll()
	}
	plan := Plan{Create: r.create, Change: r.changes(), Status: r.status(!s.Deployment.Spec.Paused && !scaled)}
	if s.Deployment.Spec.Paused || !scaled && complete(s.Deployment, &plan.Status.Status) {
		plan.Delete = r.surplus()
	}
	if plan.Status == s.Deployment {
		plan.Again = r.untilDeadline(&plan.Status.Status)
	}
	return plan
}

// rollout is a deployment while it is decided about.
type rollout struct {
	State
	// current is the replica set of the deployment's template, nil: there is none yet; old are the others, the oldest first.
	current *appsv1.ReplicaSet
	old     []*appsv1.ReplicaSet
	// changed are copies of those that change, by their names; create is current, where it is to be made.
	changed map[string]*appsv1.ReplicaSet
	create  *appsv1.ReplicaSet
	// surge and unavailable are how many pods there may be more than wanted, and how many of them may be missing, while pods move.
	// They, and sums of them, may be more than an int32 holds, which a replica set's size is: what users write may be as large as one.
	wanted, surge, unavailable int
}

func newRollout(s State) *rollout {
	r := &rollout{State: s, changed: map[string]*appsv1.ReplicaSet{}, wanted: int(*s.Deployment.Spec.Replicas)}
	r.surge, r.unavailable = bounds(s.Deployment)
	all := slices.Clone(s.Sets)
	slices.SortFunc(all, older)
	for _, set := range all {
		// Of several with the template, as a change of defaults may leave them, the oldest one is it.
		if r.current == nil && sameTemplate(&set.Spec.Template, &s.Deployment.Spec.Template) {
			r.current = set
			continue
		}
		r.old = append(r.old, set)
	}
	return r
}

// older compares replica sets by when they were created.
func older(a, b *appsv1.ReplicaSet) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// size is how many pods a replica set is to have, by what was decided until now.
func (r *rollout) size(set *appsv1.ReplicaSet) int {
	if to := r.changed[set.Name]; to != nil {
		return int(*to.Spec.Replicas)
	}
	return int(*set.Spec.Replicas)
}

// edit is the copy of a replica set that is to be changed.
func (r *rollout) edit(set *appsv1.ReplicaSet) *appsv1.ReplicaSet {
	if set == r.create {
		return set
	}
	to := r.changed[set.Name]
	if to == nil {
		to = set.DeepCopy()
		r.changed[set.Name] = to
	}
	return to
}

// resize has a replica set scaled, and notes by which size of the deployment that was decided.
func (r *rollout) resize(set *appsv1.ReplicaSet, size int) {
	to := r.edit(set)
	to.Spec.Replicas = ptr.To(clamp(size))
	if to.Annotations == nil {
		to.Annotations = map[string]string{}
	}
	to.Annotations[desiredAnnotation] = strconv.Itoa(r.wanted)
	to.Annotations[maximumAnnotation] = strconv.Itoa(int(clamp(r.wanted + r.surge)))
}

// clamp is a number of pods as objects hold it.
func clamp(n int) int32 { return int32(min(n, math.MaxInt32)) }

// changes are the replica sets that differ from what they were. Those that grow come first: what the others lose is more than there is to be at least.
func (r *rollout) changes() (all []Change) {
	for _, set := range r.Sets {
		if to := r.changed[set.Name]; to != nil && !equality.Semantic.DeepEqual(set, to) {
			all = append(all, Change{To: to, From: *set.Spec.Replicas})
		}
	}
	slices.SortStableFunc(all, func(a, b Change) int { return cmp.Compare(*b.To.Spec.Replicas-b.From, *a.To.Spec.Replicas-a.From) })
	return all
}

// active are the replica sets that are to have pods.
func (r *rollout) active() (sets []*appsv1.ReplicaSet) {
	for _, set := range r.Sets {
		if r.size(set) > 0 {
			sets = append(sets, set)
		}
	}
	return sets
}

// total is how many pods all replica sets are to have.
func (r *rollout) total() (n int) {
	for _, set := range r.Sets {
		n += r.size(set)
	}
	if r.create != nil {
		n += int(*r.create.Spec.Replicas)
	}
	return n
}

// present is how many pods the replica sets have, or are to have, whichever is more; false: that cannot be told, because an old one has not said yet what
// it has by its newest size.
func (r *rollout) present() (n int, ok bool) {
	n = r.total()
	for _, set := range r.Sets {
		if set != r.current && set.Status.ObservedGeneration < set.Generation {
			return 0, false
		}
		n += max(0, int(set.Status.Replicas)-r.size(set))
	}
	return n, true
}

// available is how many pods of all replica sets are available, and stay so: a replica set that was made smaller may not have said yet which ones went.
func (r *rollout) available() (n int) {
	for _, set := range r.Sets {
		n += min(int(set.Status.AvailableReplicas), r.size(set))
	}
	return n
}

// begin makes the replica set of the template, if there is none, and has it bear what the deployment says of it.
func (r *rollout) begin() {
	if r.current == nil {
		r.create = newReplicaSet(r.Deployment, r.nextRevision())
		r.current = r.create
		return
	}
	r.annotateNew()
}

// annotateNew has the replica set of the template bear the deployment's annotations, its minReadySeconds and the newest revision.
func (r *rollout) annotateNew() {
	if r.current == nil {
		return
	}
	to := r.edit(r.current)
	to.Spec.MinReadySeconds = r.Deployment.Spec.MinReadySeconds
	annotations := maps.Clone(to.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	copyAnnotations(annotations, r.Deployment.Annotations)
	promote(annotations, r.nextRevision())
	if len(annotations) > 0 {
		to.Annotations = annotations
	}
}

// nextRevision is one more than the revisions of all old replica sets.
func (r *rollout) nextRevision() int64 {
	newest := int64(0)
	for _, set := range r.old {
		newest = max(newest, revision(set))
	}
	return newest + 1
}

// surplus are old replica sets beyond the history's limit that have no pods, the oldest revisions first.
func (r *rollout) surplus() (all []*appsv1.ReplicaSet) {
	limit := r.Deployment.Spec.RevisionHistoryLimit
	if limit == nil || *limit == math.MaxInt32 {
		return nil
	}
	var kept []*appsv1.ReplicaSet
	for _, set := range r.old {
		if set.DeletionTimestamp == nil {
			kept = append(kept, set)
		}
	}
	slices.SortStableFunc(kept, func(a, b *appsv1.ReplicaSet) int { return cmp.Compare(revision(a), revision(b)) })
	for _, set := range kept[:max(0, len(kept)-int(*limit))] {
		if set.Status.Replicas == 0 && *set.Spec.Replicas == 0 && r.size(set) == 0 && set.Generation <= set.Status.ObservedGeneration {
			all = append(all, set)
		}
	}
	return all
}
