package job

import (
	"cmp"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
)

// mostUncounted is how many pods a status has of those that are not counted yet: more would make it large.
const mostUncounted = 500

// Done is what has become of a plan.
type Done struct {
	Created int
	// Deleted are the pods of the plan that were asked to end.
	Deleted []*corev1.Pod
}

// Record is what is to be written down of a job, in this order: Status, then the finalizers of Free are taken off, then Settle.
type Record struct {
	Status batchv1.JobStatus
	Free   []*corev1.Pod
	// Suspension is the condition Suspended, when the status changes it.
	Suspension *batchv1.JobCondition

	// tracked are the pods that have the finalizer before any of Free loses it.
	tracked sets.Set[types.UID]
	outcome *batchv1.JobCondition
	// more: there are pods that the status had no place for.
	more bool
}

// Track says what is to be written down of a job when its plan was carried out as far as done says.
func Track(s State, p Plan, done Done) Record {
	j := s.Job
	r := Record{Status: *j.Status.DeepCopy(), tracked: sets.New[types.UID](), outcome: p.Outcome}
	now := metav1.NewTime(s.Now)
	if r.Status.UncountedTerminatedPods == nil {
		r.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	if r.Status.StartTime == nil && !suspended(j) {
		r.Status.StartTime = &now
	}
	r.count(p, done)
	if len(done.Deleted) != len(p.Delete) && r.outcome != nil {
		r.outcome = nil // there are pods of which it is not known whether they end
	}
	if p.Outcome == nil {
		if r.outcome = complete(j, p.view, r.Status.Active, s.Now); r.outcome == nil && p.Managed {
			r.suspend(j, now)
		}
	}
	for _, pod := range s.Pods {
		if tracked(pod) && !(p.Release && slices.Contains(done.Deleted, pod)) {
			r.tracked.Insert(pod.UID)
		}
	}
	settle(&r.Status, r.tracked)
	r.note(s, p.view)
	if indexed(j) {
		r.Status.CompletedIndexes, r.Status.Succeeded = p.view.completed.String(), int32(p.view.completed.count())
		r.Status.FailedIndexes = nil
		if j.Spec.BackoffLimitPerIndex != nil {
			r.Status.FailedIndexes = ptr.To(p.view.lost.String())
		}
	}
	if r.outcome == nil {
		return r
	}
	if conditionOf(j, r.outcome.Type) == nil {
		r.Status.Conditions = append(r.Status.Conditions, *r.outcome)
	}
	if n, said := completions(j); r.Status.StartTime == nil && !(said && n == 0) {
		r.Status.StartTime = &now // a job that ends while it is suspended
	}
	return r
}

// count is how many pods run when a plan was carried out.
func (r *Record) count(p Plan, done Done) {
	ready, terminating := p.view.ready, p.view.terminating+int32(len(done.Deleted))
	for _, pod := range done.Deleted {
		if isReady(pod) {
			ready--
		}
	}
	r.Status.Active = int32(len(p.view.active) + done.Created - len(done.Deleted))
	r.Status.Ready, r.Status.Terminating = &ready, &terminating
}

// complete is the outcome of a job that so many pods have succeeded of as were asked for; nil: it is not. Where nobody said how many, one is enough, when
// the others have ended.
func complete(j *batchv1.Job, v view, active int32, now time.Time) *batchv1.JobCondition {
	n, said := completions(j)
	if active > 0 || said && int(v.succeeded) < n || !said && v.succeeded == 0 {
		return nil
	}
	return condition(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue, batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods", now)
}

// suspend writes down that a job is suspended, or that it is not any more. Either way the time begins anew that it may be active.
func (r *Record) suspend(j *batchv1.Job, now metav1.Time) {
	had := conditionOf(j, batchv1.JobSuspended)
	was := had != nil && had.Status == corev1.ConditionTrue
	switch {
	case suspended(j) && !was:
		r.Suspension = condition(batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended", now.Time)
		r.Status.StartTime = nil
	case !suspended(j) && was:
		r.Suspension = condition(batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed", now.Time)
		r.Status.StartTime = &now
	default:
		return
	}
	r.Status.Conditions = slices.DeleteFunc(r.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == batchv1.JobSuspended })
	r.Status.Conditions = append(r.Status.Conditions, *r.Suspension)
}

// note writes down the pods that have ended, or that end with the job, and that were not counted yet.
func (r *Record) note(s State, v view) {
	j := s.Job
	successes, failures := uncounted(j)
	noted := r.Status.UncountedTerminatedPods
	all := slices.Clone(s.Pods)
	if indexed(j) {
		slices.SortStableFunc(all, func(a, b *corev1.Pod) int { return cmp.Compare(indexOf(a), indexOf(b)) })
	}
	succeeds := r.outcome != nil && r.outcome.Type == batchv1.JobSuccessCriteriaMet
	completed := 0
	for _, pod := range all {
		fails := failed(j, pod)
		if !r.tracked.Has(pod.UID) || !r.frees(j, v, pod, fails) {
			continue
		}
		r.Free = append(r.Free, pod)
		switch {
		case !validIndex(j, pod):
		case pod.Status.Phase == corev1.PodSucceeded && !failures.Has(pod.UID):
			if indexed(j) {
				completed++ // completedIndexes has it
			} else if !successes.Has(pod.UID) {
				noted.Succeeded = append(noted.Succeeded, pod.UID)
			}
		case (fails || r.outcome != nil && !succeeds) && !failures.Has(pod.UID) && judge(j, pod).counts:
			noted.Failed = append(noted.Failed, pod.UID)
		}
		if completed+len(noted.Succeeded)+len(noted.Failed) >= mostUncounted {
			r.more = true
			return
		}
	}
}

// frees says whether a pod loses its finalizer.
func (r *Record) frees(j *batchv1.Job, v view, pod *corev1.Pod, fails bool) bool {
	switch {
	case j.DeletionTimestamp != nil, r.outcome != nil, pod.Status.Phase == corev1.PodSucceeded:
		return true
	case !fails:
		return false
	}
	awaits := v.awaited[indexOf(pod)]
	return awaits == nil || awaits.UID != pod.UID
}

// Settle counts the pods of a status that have no finalizer any more, freed the last of them, and says what the job has finished with; nil: it has not.
func (r Record) Settle(status *batchv1.JobStatus, freed []*corev1.Pod, now time.Time) *batchv1.JobCondition {
	left := r.tracked.Clone()
	for _, pod := range freed {
		left.Delete(pod.UID)
	}
	settle(status, left)
	noted := status.UncountedTerminatedPods
	if r.outcome == nil || r.more || len(freed) != len(r.Free) || len(noted.Succeeded)+len(noted.Failed) > 0 || *status.Terminating > 0 {
		return nil
	}
	end := condition(batchv1.JobFailed, corev1.ConditionTrue, r.outcome.Reason, r.outcome.Message, now)
	if r.outcome.Type == batchv1.JobSuccessCriteriaMet {
		end.Type = batchv1.JobComplete
		status.CompletionTime = &end.LastTransitionTime
		if status.StartTime != nil && end.LastTransitionTime.Before(status.StartTime) {
			status.CompletionTime = status.StartTime // the clock was set back
		}
	}
	status.Conditions = append(status.Conditions, *end)
	return end
}

// settle counts the pods that a status has and that have no finalizer.
func settle(status *batchv1.JobStatus, tracked sets.Set[types.UID]) {
	noted := status.UncountedTerminatedPods
	count := func(uids []types.UID, n *int32) []types.UID {
		left := slices.DeleteFunc(slices.Clone(uids), func(uid types.UID) bool { return !tracked.Has(uid) })
		*n += int32(len(uids) - len(left))
		return left
	}
	noted.Succeeded, noted.Failed = count(noted.Succeeded, &status.Succeeded), count(noted.Failed, &status.Failed)
}
