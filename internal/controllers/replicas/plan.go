package replicas

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod.dev/monopod/internal/pods"
)

// burst is how many pods of one owner are made or deleted before it is looked at again.
const burst = 500

// Wanted is what an object wants.
type Wanted struct {
	Replicas, MinReadySeconds int32
	Selector                  labels.Selector
	Template                  *corev1.PodTemplateSpec
}

// Counts is what an object's status says of its pods.
type Counts struct {
	Replicas, FullyLabeled, Ready, Available, Terminating int32
}

// Plan is what is to be done for an object.
type Plan struct {
	// Create is how many pods are missing, Delete are those that are too many, the first to go first.
	Create int
	Delete []*corev1.Pod
	Counts Counts
	// Again is when a pod that is ready becomes available, from now; 0: none does.
	Again time.Duration
}

// Decide says what is to be done for an object that wants something and has pods, those that are ending or have ended too. Neighbours are the pods of all
// objects that have its owner: who has more of them on its node goes rather.
func Decide(want Wanted, mine, neighbours []*corev1.Pod, now time.Time) (p Plan) {
	active := make([]*corev1.Pod, 0, len(mine))
	full := labels.Set(want.Template.Labels).AsSelectorPreValidated()
	for _, pod := range mine {
		switch {
		case pods.Ended(pod):
			continue
		case pod.DeletionTimestamp != nil:
			p.Counts.Terminating++
			continue
		}
		active = append(active, pod)
		if full.Matches(labels.Set(pod.Labels)) {
			p.Counts.FullyLabeled++
		}
		if !pods.IsTrue(&pod.Status, corev1.PodReady) {
			continue
		}
		p.Counts.Ready++
		left := pods.UntilAvailable(&pod.Status, want.MinReadySeconds, now)
		if left == 0 {
			p.Counts.Available++
		} else if p.Again == 0 || left < p.Again {
			p.Again = left
		}
	}
	p.Counts.Replicas = int32(len(active))
	switch more := int(want.Replicas) - len(active); {
	case more > 0:
		p.Create = min(more, burst)
	case more < 0:
		few := min(-more, burst)
		if few < len(active) {
			rank(active, neighbours, now)
		}
		p.Delete = active[:few]
	}
	return p
}

// failure is the condition ReplicaFailure of an object whose pods could not be made or deleted.
type failure struct{ reason, message string }

const (
	failedCreate = "FailedCreate"
	failedDelete = "FailedDelete"
)

// conditions are those of an object with its failure, or without one. What has not changed keeps its time. C is the type of the object's conditions.
func conditions[C any](before []C, is func(C) bool, has *failure, say func(failure) C) []C {
	i := slices.IndexFunc(before, is)
	switch {
	case has == nil && i >= 0:
		return slices.Delete(slices.Clone(before), i, i+1)
	case has != nil && i < 0:
		return append(slices.Clone(before), say(*has))
	}
	return before
}
