package daemonset

import (
	corev1 "k8s.io/api/core/v1"
)

// pair are the pods of a node that stay, one of the set's template and one of another. ok is false where there are more of a kind.
func (r *round) pair(at *site) (young, old *corev1.Pod, ok bool) {
	for _, pod := range at.pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		of := &old
		if r.updated(pod) {
			of = &young
		}
		if *of != nil {
			return nil, nil, false
		}
		*of = pod
	}
	return young, old, true
}

// replace deletes pods of other templates, so that keep makes new ones in their places: all that are not available, and as many others as may be missing.
func (r *round) replace() {
	missing := 0
	var candidates []*corev1.Pod
	for _, at := range r.sites {
		if !at.run && len(at.pods) == 0 {
			continue
		}
		young, old, ok := r.pair(at)
		switch {
		case !ok, (young == nil) == (old == nil):
			missing++ // none, or one too many, which keep sees to
		case young != nil:
			if !r.available(young) {
				missing++
			}
		case !r.available(old):
			r.delete(old)
			missing++
		default:
			candidates = append(candidates, old)
		}
	}
	for _, pod := range candidates[:max(0, min(r.maxUnavailable-missing, len(candidates)))] {
		r.delete(pod)
	}
}

// surge makes pods of the set's template beside those of other templates: on all nodes on which those are not available, and on as many others as may have two.
// When the new one is available the old one goes.
func (r *round) surge() {
	wanted, available, surging := 0, 0, 0
	var candidates []*site
	var leaving []*corev1.Pod
	for _, at := range r.sites {
		if at.run {
			wanted++
		}
		young, old, ok := r.pair(at)
		if !ok {
			surging++
			continue
		}
		there := old != nil && r.available(old)
		if there || old == nil && young != nil && r.available(young) {
			available++
		}
		switch {
		case old == nil:
		case young == nil && !there && !at.run:
			r.delete(old)
		case young == nil && !there:
			r.create(at)
		case young == nil && !at.run:
			leaving = append(leaving, old)
		case young == nil:
			candidates = append(candidates, at)
		case r.available(young):
			r.delete(old)
		default:
			surging++
		}
	}
	for _, at := range candidates[:max(0, min(r.maxSurge-surging, len(candidates)))] {
		r.create(at)
	}
	// Those on nodes that are to have none any more wait until others are available in their stead.
	for _, pod := range leaving[:max(0, min(available-wanted, len(leaving)))] {
		r.delete(pod)
	}
}
