package deployment

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The reasons of conditions, upstream's. kubectl rollout status reads them.
const (
	reasonAvailable    = "MinimumReplicasAvailable"
	reasonUnavailable  = "MinimumReplicasUnavailable"
	reasonCreated      = "NewReplicaSetCreated"
	reasonFound        = "FoundNewReplicaSet"
	reasonUpdated      = "ReplicaSetUpdated"
	reasonComplete     = "NewReplicaSetAvailable"
	reasonTimedOut     = "ProgressDeadlineExceeded"
	reasonPaused       = "DeploymentPaused"
	reasonResumed      = "DeploymentResumed"
	reasonCreateFailed = "ReplicaSetCreateError"
)

// status is the deployment with its status as it is by its replica sets. Of one that moves pods it is also said whether that makes progress.
func (r *rollout) status(moves bool) *appsv1.Deployment {
	d := r.Deployment
	to := appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, CollisionCount: d.Status.CollisionCount, Conditions: slices.Clone(d.Status.Conditions), TerminatingReplicas: new(int32),
	}
	wanted := 0
	for _, set := range r.Sets {
		wanted += r.size(set)
		to.Replicas += set.Status.Replicas
		to.ReadyReplicas += set.Status.ReadyReplicas
		to.AvailableReplicas += set.Status.AvailableReplicas
		switch {
		case set.Status.TerminatingReplicas != nil && to.TerminatingReplicas != nil:
			*to.TerminatingReplicas += *set.Status.TerminatingReplicas
		case set.Status.TerminatingReplicas == nil && set.Status.ObservedGeneration > 0:
			to.TerminatingReplicas = nil // whoever keeps this one does not say
		}
	}
	if r.create != nil {
		wanted += int(*r.create.Spec.Replicas)
	} else if r.current != nil {
		to.UpdatedReplicas = r.current.Status.Replicas
	}
	to.UnavailableReplicas = clamp(max(0, wanted-int(to.AvailableReplicas)))
	if d.DeletionTimestamp == nil {
		r.pauseCondition(&to)
		if r.create != nil {
			r.set(&to, appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonCreated, fmt.Sprintf("Created new replica set %q", r.create.Name))
		} else if r.current != nil && condition(&to, appsv1.DeploymentProgressing) == nil {
			r.set(&to, appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonFound, fmt.Sprintf("Found new replica set %q", r.current.Name))
		}
	}
	if int(to.AvailableReplicas) >= r.wanted-r.unavailable {
		r.set(&to, appsv1.DeploymentAvailable, corev1.ConditionTrue, reasonAvailable, "Deployment has minimum availability.")
	} else {
		r.set(&to, appsv1.DeploymentAvailable, corev1.ConditionFalse, reasonUnavailable, "Deployment does not have minimum availability.")
	}
	if moves {
		r.progress(&to)
		r.failure(&to)
	}
	if !hasDeadline(d) {
		remove(&to, appsv1.DeploymentProgressing)
	}
	newest := d.Annotations[revisionAnnotation]
	if set := r.newest(); set != nil && set.Annotations[revisionAnnotation] != "" {
		newest = set.Annotations[revisionAnnotation]
	}
	if equality.Semantic.DeepEqual(to, d.Status) && newest == d.Annotations[revisionAnnotation] {
		return d
	}
	d = d.DeepCopy()
	d.Status = to
	if newest != d.Annotations[revisionAnnotation] {
		d.Annotations = maps.Clone(d.Annotations)
		if d.Annotations == nil {
			d.Annotations = map[string]string{}
		}
		d.Annotations[revisionAnnotation] = newest
	}
	return d
}

// newest is the replica set of the template as it is to be.
func (r *rollout) newest() *appsv1.ReplicaSet {
	if r.current == nil || r.current == r.create {
		return r.create
	}
	if to := r.changed[r.current.Name]; to != nil {
		return to
	}
	return r.current
}

// pauseCondition says that a deployment was paused, or goes on: the time of a pause does not count for the deadline.
func (r *rollout) pauseCondition(to *appsv1.DeploymentStatus) {
	c := condition(to, appsv1.DeploymentProgressing)
	if !hasDeadline(r.Deployment) || c != nil && c.Reason == reasonTimedOut {
		return
	}
	paused := c != nil && c.Reason == reasonPaused
	switch {
	case r.Deployment.Spec.Paused && !paused:
		r.set(to, appsv1.DeploymentProgressing, corev1.ConditionUnknown, reasonPaused, "Deployment is paused")
	case !r.Deployment.Spec.Paused && paused:
		r.set(to, appsv1.DeploymentProgressing, corev1.ConditionUnknown, reasonResumed, "Deployment is resumed")
	}
}

// progress says whether a rollout is complete, goes on, or has made no progress for too long.
func (r *rollout) progress(to *appsv1.DeploymentStatus) {
	d := r.Deployment
	before := condition(&d.Status, appsv1.DeploymentProgressing)
	if !hasDeadline(d) || before != nil && before.Reason == reasonComplete && to.Replicas == to.UpdatedReplicas {
		return
	}
	subject := fmt.Sprintf("Deployment %q", d.Name)
	if r.current != nil {
		subject = fmt.Sprintf("ReplicaSet %q", r.current.Name)
	}
	switch {
	case complete(d, to):
		r.set(to, appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonComplete, subject+" has successfully progressed.")
	case progresses(&d.Status, to):
		// The time of the update is that of the progress, also when nothing else changes.
		next := r.condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonUpdated, subject+" is progressing.")
		if before != nil && before.Status == corev1.ConditionTrue {
			next.LastTransitionTime = before.LastTransitionTime
		}
		remove(to, appsv1.DeploymentProgressing)
		to.Conditions = append(to.Conditions, next)
	case r.timedOut(to):
		r.set(to, appsv1.DeploymentProgressing, corev1.ConditionFalse, reasonTimedOut, subject+" has timed out progressing.")
	}
}

// failure is that of a replica set, of the template's rather than of another one.
func (r *rollout) failure(to *appsv1.DeploymentStatus) {
	sets := r.Sets
	if r.current != nil {
		sets = append([]*appsv1.ReplicaSet{r.current}, sets...)
	}
	for _, set := range sets {
		for _, c := range set.Status.Conditions {
			if c.Type != appsv1.ReplicaSetReplicaFailure {
				continue
			}
			put(to, appsv1.DeploymentCondition{
				Type: appsv1.DeploymentReplicaFailure, Status: c.Status, Reason: c.Reason, Message: c.Message,
				LastTransitionTime: c.LastTransitionTime, LastUpdateTime: c.LastTransitionTime,
			})
			return
		}
	}
	remove(to, appsv1.DeploymentReplicaFailure)
}

// complete says whether all pods that a deployment wants are of its template and available, and no other ones are there.
func complete(d *appsv1.Deployment, st *appsv1.DeploymentStatus) bool {
	n := *d.Spec.Replicas
	return st.UpdatedReplicas == n && st.Replicas == n && st.AvailableReplicas == n && st.ObservedGeneration >= d.Generation
}

// progresses says whether pods have moved, or have become ready or available.
func progresses(before, now *appsv1.DeploymentStatus) bool {
	return now.UpdatedReplicas > before.UpdatedReplicas || now.Replicas-now.UpdatedReplicas < before.Replicas-before.UpdatedReplicas ||
		now.ReadyReplicas > before.ReadyReplicas || now.AvailableReplicas > before.AvailableReplicas
}

func hasDeadline(d *appsv1.Deployment) bool {
	return d.Spec.ProgressDeadlineSeconds != nil && *d.Spec.ProgressDeadlineSeconds != math.MaxInt32
}

func (r *rollout) deadline(c *appsv1.DeploymentCondition) time.Time {
	return c.LastUpdateTime.Add(time.Duration(*r.Deployment.Spec.ProgressDeadlineSeconds) * time.Second)
}

func (r *rollout) timedOut(to *appsv1.DeploymentStatus) bool {
	c := condition(to, appsv1.DeploymentProgressing)
	switch {
	case c == nil || c.Reason == reasonComplete:
		return false
	case c.Reason == reasonTimedOut:
		return true
	}
	return r.deadline(c).Before(r.Now)
}

// untilDeadline is the time until a rollout has made no progress for too long; 0: there is nothing to wait for.
func (r *rollout) untilDeadline(st *appsv1.DeploymentStatus) time.Duration {
	c := condition(st, appsv1.DeploymentProgressing)
	if !hasDeadline(r.Deployment) || r.Deployment.Spec.Paused || c == nil || c.Reason == reasonTimedOut || complete(r.Deployment, st) {
		return 0
	}
	// Times of the API are whole seconds: one more, so that the deadline has passed then.
	return max(0, r.deadline(c).Sub(r.Now)) + time.Second
}

func condition(st *appsv1.DeploymentStatus, of appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range st.Conditions {
		if st.Conditions[i].Type == of {
			return &st.Conditions[i]
		}
	}
	return nil
}

func (r *rollout) condition(of appsv1.DeploymentConditionType, is corev1.ConditionStatus, reason, message string) appsv1.DeploymentCondition {
	now := metav1.NewTime(r.Now)
	return appsv1.DeploymentCondition{Type: of, Status: is, Reason: reason, Message: message, LastUpdateTime: now, LastTransitionTime: now}
}

// set sets a condition.
func (r *rollout) set(st *appsv1.DeploymentStatus, of appsv1.DeploymentConditionType, is corev1.ConditionStatus, reason, message string) {
	put(st, r.condition(of, is, reason, message))
}

// put puts a condition in the place of the one of its type. With the same status and reason the old one stays, with the same status its time does.
func put(st *appsv1.DeploymentStatus, c appsv1.DeploymentCondition) {
	if old := condition(st, c.Type); old != nil {
		if old.Status == c.Status && old.Reason == c.Reason {
			return
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	remove(st, c.Type)
	st.Conditions = append(st.Conditions, c)
}

func remove(st *appsv1.DeploymentStatus, of appsv1.DeploymentConditionType) {
	st.Conditions = slices.DeleteFunc(slices.Clone(st.Conditions), func(c appsv1.DeploymentCondition) bool { return c.Type == of })
}

// failed is a deployment that could not get the replica set of its template; the same object: it says so already, or has no deadline to say so for.
func failed(d *appsv1.Deployment, message string, now time.Time) *appsv1.Deployment {
	if !hasDeadline(d) {
		return d
	}
	r := &rollout{State: State{Deployment: d, Now: now}}
	to := d.Status.DeepCopy()
	r.set(to, appsv1.DeploymentProgressing, corev1.ConditionFalse, reasonCreateFailed, message)
	if equality.Semantic.DeepEqual(to, &d.Status) {
		return d
	}
	d = d.DeepCopy()
	d.Status = *to
	return d
}
