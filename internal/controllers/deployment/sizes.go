package deployment

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"

	"monopod.dev/monopod/internal/controllers/owned"
)

// bounds are how many pods a deployment may have more than it wants, and how many of those that it wants may be missing, while its pods move from one
// replica set to another. Shares are of the wanted number; of the surge they are rounded up, of what may be missing down. When both are 0 by that, one may
// be missing: else nothing could begin.
func bounds(d *appsv1.Deployment) (surge, unavailable int) {
	rolling := d.Spec.Strategy.RollingUpdate
	if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || rolling == nil {
		return 0, 0
	}
	wanted := int(*d.Spec.Replicas)
	more, less := owned.Share(rolling.MaxSurge, wanted, true), owned.Share(rolling.MaxUnavailable, wanted, false)
	if more == 0 && less == 0 {
		less = 1
	}
	return more, min(less, wanted)
}

// roll moves pods to the replica set of the template, by as many as the strategy allows now.
func (r *rollout) roll() {
	r.begin()
	r.grow()
	r.shrink()
}

// grow scales the replica set of the template as far as there is room. Room that old pods are to make is there when they have: upstream counts what is
// asked for alone, and may have more pods for a moment than the deployment allows.
func (r *rollout) grow() {
	size, room := r.sizeOfCurrent(), 0
	if n, ok := r.present(); ok {
		room = r.wanted + r.surge - n
	}
	switch {
	case size > r.wanted:
		r.resize(r.current, r.wanted)
	case size < r.wanted && room > 0:
		r.resize(r.current, size+min(room, r.wanted-size))
	case r.create != nil:
		r.resize(r.current, size) // its annotations say by which size it was made
	}
}

func (r *rollout) sizeOfCurrent() int {
	if r.current == r.create {
		return int(*r.create.Spec.Replicas)
	}
	return r.size(r.current)
}

// shrink takes pods from the old replica sets: first those that are not available, because nobody misses them, and then as many as may be missing.
func (r *rollout) shrink() {
	least := r.wanted - r.unavailable
	// Pods of the template that are not available yet do not make up for old ones.
	spare := r.total() - least - (r.sizeOfCurrent() - r.availableOfCurrent())
	for _, set := range r.old {
		if sick := r.size(set) - int(set.Status.AvailableReplicas); spare > 0 && sick > 0 {
			n := min(spare, sick)
			r.resize(set, r.size(set)-n)
			spare -= n
		}
	}
	if spare <= 0 {
		return
	}
	healthy := r.available() - least
	for _, set := range r.old {
		if healthy > 0 && r.size(set) > 0 {
			n := min(healthy, r.size(set))
			r.resize(set, r.size(set)-n)
			healthy -= n
		}
	}
}

func (r *rollout) availableOfCurrent() int {
	if r.current == r.create {
		return 0
	}
	return int(r.current.Status.AvailableReplicas)
}

// recreate ends all old pods, and has new ones made when the last of them is gone. A set whose controller has not seen its size yet may be making pods by the one
// before.
func (r *rollout) recreate() {
	running := false
	for _, set := range r.old {
		if r.size(set) > 0 {
			r.resize(set, 0)
		}
		running = running || set.Status.ObservedGeneration < set.Generation || set.Status.Replicas > 0 || *set.Spec.Replicas > 0 || r.Running(set)
	}
	if running {
		r.annotateNew()
		return
	}
	r.begin()
	if r.create != nil || r.size(r.current) != r.wanted {
		r.resize(r.current, r.wanted)
	}
}

// scaled says whether the deployment's size is another one than that by which its replica sets have theirs. Where all pods are made anew there are no
// shares, as long as several have pods.
func (r *rollout) scaled() bool {
	active := r.active()
	if len(active) > 1 && r.Deployment.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return false
	}
	for _, set := range active {
		if desired, ok := number(set.Annotations[desiredAnnotation]); ok && desired != r.wanted {
			return true
		}
	}
	return false
}

// scale gives replica sets their shares of the deployment's size, without moving pods from one to another.
func (r *rollout) scale() {
	active := r.active()
	switch {
	case len(active) <= 1:
		if set := r.onlyOrNewest(active); set != nil {
			r.resize(set, r.wanted)
		}
	case r.saturated():
		for _, set := range r.old {
			if r.size(set) > 0 {
				r.resize(set, 0)
			}
		}
	case r.Deployment.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType:
		r.share(active)
	}
}

// onlyOrNewest is the replica set that has all pods: the only active one, else that of the template, else the newest.
func (r *rollout) onlyOrNewest(active []*appsv1.ReplicaSet) *appsv1.ReplicaSet {
	switch {
	case len(active) == 1:
		return active[0]
	case r.current != nil:
		return r.current
	case len(r.old) > 0:
		return r.old[len(r.old)-1]
	}
	return nil
}

// saturated says whether the replica set of the template has all pods, and all of them are available.
func (r *rollout) saturated() bool {
	if r.current == nil {
		return false
	}
	desired, ok := number(r.current.Annotations[desiredAnnotation])
	return ok && desired == r.wanted && r.size(r.current) == r.wanted && int(r.current.Status.AvailableReplicas) == r.wanted
}

// share spreads what the deployment may have more, or must have less, over its active replica sets in proportion to their sizes, the largest first. What
// rounding leaves is the largest one's.
func (r *rollout) share(active []*appsv1.ReplicaSet) {
	allowed := 0
	if r.wanted > 0 {
		allowed = r.wanted + r.surge
	}
	add := allowed - r.total()
	slices.SortStableFunc(active, func(a, b *appsv1.ReplicaSet) int {
		age := older(a, b)
		if add > 0 {
			age = -age // newer ones grow first, older ones shrink first
		}
		return cmp.Or(cmp.Compare(r.size(b), r.size(a)), age)
	})
	sizes, left := make([]int, len(active)), add
	for i, set := range active {
		sizes[i] = r.size(set)
		part := r.fraction(set)
		if add > 0 {
			part = max(0, min(part, left))
		} else {
			part = min(0, max(part, left))
		}
		sizes[i] += part
		left -= part
	}
	sizes[0] = max(0, sizes[0]+left)
	for i, set := range active {
		r.resize(set, sizes[i])
	}
}

// fraction is by how much a replica set grows when all do in proportion. The size that it is a part of stands in its annotation.
func (r *rollout) fraction(set *appsv1.ReplicaSet) int {
	size := r.size(set)
	if r.wanted == 0 {
		return -size
	}
	before, ok := number(set.Annotations[maximumAnnotation])
	if !ok || before == 0 {
		if before = int(r.Deployment.Status.Replicas); before == 0 {
			return 0
		}
	}
	return int(min(math.Round(float64(size)*float64(r.wanted+r.surge)/float64(before)), math.MaxInt32)) - size
}

// number reads an annotation that is a number of pods.
func number(s string) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return int(n), err == nil
}
