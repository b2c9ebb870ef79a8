package job

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"monopod.dev/monopod/internal/pods"
)

// burst is how many pods of one job are made or deleted before it is looked at again.
const burst = 500

// State is what is known of a job. Nothing that was written for it is missing in it.
type State struct {
	Job *batchv1.Job
	// Pods are the job's, those that have ended too.
	Pods []*corev1.Pod
	// Failures are those of the pods, these ones' and of those that have gone.
	Failures Failures
	Now      time.Time
}

// Plan is what is to be done about a job's pods.
type Plan struct {
	// Create are the pods that are missing, Delete those that are too many; one of the two is empty.
	Create []Missing
	Delete []*corev1.Pod
	// Release: the pods of Delete lose the finalizer first, so that they are no failures. Else it is taken off when they were counted.
	Release bool
	// Outcome is the condition that the job is going to end with, SuccessCriteriaMet or FailureTarget; nil: it goes on.
	Outcome *batchv1.JobCondition
	// Managed: the number of pods was looked after, so that the job is suspended or resumed now.
	Managed bool
	// Again is when there is something to be done that no event tells of, from now; 0: never.
	Again time.Duration

	view view
}

// view is what a job's pods say.
type view struct {
	active             []*corev1.Pod
	ready, terminating int32
	// succeeded and failed are the job's pods that did, with those that are not counted yet; of an Indexed job succeeded is the number of indexes.
	succeeded, failed int32
	// before and completed are the completed indexes of the status, and with those that the pods add; lost are those that have failed for good.
	before, completed, lost indexes
	// awaited are the last failed pods of indexes that are to have another pod, which is told of their failures. They stay until it is there.
	awaited map[int]*corev1.Pod
}

func indexed(j *batchv1.Job) bool {
	return ptr.Deref(j.Spec.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion
}

func suspended(j *batchv1.Job) bool { return ptr.Deref(j.Spec.Suspend, false) }

// completions is how many pods are to succeed, and whether that is said.
func completions(j *batchv1.Job) (int, bool) {
	return int(ptr.Deref(j.Spec.Completions, 0)), j.Spec.Completions != nil
}

// validIndex says whether a pod can count for a job.
func validIndex(j *batchv1.Job, pod *corev1.Pod) bool {
	n, _ := completions(j)
	i := indexOf(pod)
	return !indexed(j) || i != none && i < n
}

// uncounted are the pods that the status has, and that are in its numbers when their finalizer is gone.
func uncounted(j *batchv1.Job) (succeeded, failed sets.Set[types.UID]) {
	u := ptr.Deref(j.Status.UncountedTerminatedPods, batchv1.UncountedTerminatedPods{})
	return sets.New(u.Succeeded...), sets.New(u.Failed...)
}

func look(s State) view {
	j, v := s.Job, view{}
	notedSuccess, notedFailure := uncounted(j)
	v.succeeded = j.Status.Succeeded + int32(len(notedSuccess))
	v.failed = j.Status.Failed + int32(len(notedFailure))
	for _, pod := range s.Pods {
		switch {
		case active(pod):
			v.active = append(v.active, pod)
			if isReady(pod) {
				v.ready++
			}
		case terminating(pod):
			v.terminating++
		}
		if !tracked(pod) || !validIndex(j, pod) {
			continue
		}
		if pod.Status.Phase == corev1.PodSucceeded && !notedSuccess.Has(pod.UID) && !notedFailure.Has(pod.UID) {
			v.succeeded++
		}
		if failed(j, pod) && !notedFailure.Has(pod.UID) && judge(j, pod).counts {
			v.failed++
		}
	}
	if indexed(j) {
		v.lookAtIndexes(s)
	}
	return v
}

// lookAtIndexes is look for an Indexed job.
func (v *view) lookAtIndexes(s State) {
	j := s.Job
	n, _ := completions(j)
	v.before = parseIndexes(j.Status.CompletedIndexes, n)
	perIndex := j.Spec.BackoffLimitPerIndex != nil
	if perIndex {
		v.lost = parseIndexes(ptr.Deref(j.Status.FailedIndexes, ""), n)
	}
	completed, lost := map[int]bool{}, map[int]bool{}
	for _, pod := range s.Pods {
		if i := indexOf(pod); tracked(pod) && validIndex(j, pod) && pod.Status.Phase == corev1.PodSucceeded && !v.lost.has(i) {
			completed[i] = true
		}
	}
	v.completed = v.before.with(indexesOf(completed))
	v.succeeded = int32(v.completed.count())
	if !perIndex {
		return
	}
	for _, pod := range s.Pods {
		if i := indexOf(pod); tracked(pod) && validIndex(j, pod) && failed(j, pod) && losesIndex(j, pod) && !v.completed.has(i) {
			lost[i] = true
		}
	}
	v.lost = v.lost.with(indexesOf(lost))

	settled := v.completed.with(v.lost).with(taken(v.active))
	v.awaited = map[int]*corev1.Pod{}
	for _, pod := range s.Pods {
		i := indexOf(pod)
		if !tracked(pod) || !validIndex(j, pod) || !failed(j, pod) || settled.has(i) {
			continue
		}
		if last := v.awaited[i]; last == nil || allFailures(last) <= allFailures(pod) && !finished(pod).Before(finished(last)) {
			v.awaited[i] = pod
		}
	}
}

// losesIndex says whether no pod stands in for a failed one.
func losesIndex(j *batchv1.Job, pod *corev1.Pod) bool {
	counted, _ := indexFailures(pod)
	is := judge(j, pod)
	return is.failsIndex || is.counts && counted >= *j.Spec.BackoffLimitPerIndex
}

// taken are the indexes of pods.
func taken(pods []*corev1.Pod) indexes {
	all := map[int]bool{}
	for _, pod := range pods {
		if i := indexOf(pod); i != none {
			all[i] = true
		}
	}
	return indexesOf(all)
}

// Decide says what is to be done about a job's pods. The job has not finished, and is this controller's.
func Decide(s State) Plan {
	j := s.Job
	p := Plan{view: look(s)}
	p.Outcome = outcome(s, p.view)
	switch {
	case p.Outcome != nil:
		p.Delete = p.view.active
		return p
	case j.DeletionTimestamp != nil:
		return p
	}
	p.Managed = true
	if limit := j.Spec.ActiveDeadlineSeconds; limit != nil && !suspended(j) {
		p.Again = max(untilDeadline(s), time.Millisecond)
	}
	if p.Delete = p.view.surplus(j); len(p.Delete) > 0 {
		p.Release = true
		p.Delete = p.Delete[:min(len(p.Delete), burst)]
		return p
	}
	create, wait := p.view.create(s)
	p.Create = create
	if wait > 0 && (p.Again == 0 || wait < p.Again) {
		p.Again = wait
	}
	return p
}

// outcome is the condition that a job is going to end with; nil: it is not known yet. Of several that could be the first counts, and once it is written it stays.
func outcome(s State, v view) *batchv1.JobCondition {
	j := s.Job
	for _, kind := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobFailureTarget} {
		if c := conditionOf(j, kind); c != nil && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	fails := func(reason, message string) *batchv1.JobCondition {
		return condition(batchv1.JobFailureTarget, corev1.ConditionTrue, reason, message, s.Now)
	}
	for _, pod := range s.Pods {
		if failed(j, pod) {
			if why := judge(j, pod).failsJob; why != "" {
				return fails(batchv1.JobReasonPodFailurePolicy, why)
			}
		}
	}
	switch n, _ := completions(j); {
	case v.failed > *j.Spec.BackoffLimit || restartedTooOften(s):
		return fails(batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
	case j.Spec.ActiveDeadlineSeconds != nil && !suspended(j) && untilDeadline(s) <= 0:
		return fails(batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline")
	case j.Spec.MaxFailedIndexes != nil && v.lost.count() > int(*j.Spec.MaxFailedIndexes):
		return fails(batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes")
	case v.lost.count() > 0 && v.lost.count()+v.completed.count() >= n:
		return fails(batchv1.JobReasonFailedIndexes, "Job has failed indexes")
	case indexed(j):
		if why, ok := enough(j.Spec.SuccessPolicy, v.completed, n); ok {
			return condition(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue, batchv1.JobReasonSuccessPolicy, why, s.Now)
		}
	}
	return nil
}

// untilDeadline is how long a job with an activeDeadlineSeconds may still run. One that does not yet has all of it.
func untilDeadline(s State) time.Duration {
	limit := pods.Seconds(*s.Job.Spec.ActiveDeadlineSeconds)
	if s.Job.Status.StartTime == nil || resumes(s.Job) {
		return limit
	}
	return limit - s.Now.Sub(s.Job.Status.StartTime.Time)
}

// resumes says whether a job was suspended and is not to be any more. Its time begins anew.
func resumes(j *batchv1.Job) bool {
	c := conditionOf(j, batchv1.JobSuspended)
	return !suspended(j) && c != nil && c.Status == corev1.ConditionTrue
}

// restartedTooOften: of pods whose containers are started again where they are, each time counts.
func restartedTooOften(s State) bool {
	if s.Job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return false
	}
	var restarts int64
	for _, pod := range s.Pods {
		if pod.Status.Phase != corev1.PodRunning && pod.Status.Phase != corev1.PodPending {
			continue
		}
		for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			restarts += int64(c.RestartCount)
		}
	}
	return restarts > 0 && restarts >= int64(*s.Job.Spec.BackoffLimit)
}

// wanted is how many pods of a job are to run.
func (v view) wanted(j *batchv1.Job) int {
	n, said := completions(j)
	switch {
	case suspended(j):
		return 0
	case said:
		return max(0, min(int(*j.Spec.Parallelism), n-int(v.succeeded)))
	case v.succeeded > 0: // one has found that the work is done: the others find it, too
		return len(v.active)
	}
	return int(*j.Spec.Parallelism)
}

// surplus are the active pods that are too many, those that go first at the beginning. They are, above all, those that cannot count: with a completion
// index that another one has or that there is not, or without the finalizer, as when somebody was about to delete them.
func (v view) surplus(j *batchv1.Job) []*corev1.Pod {
	var useless, left []*corev1.Pod
	sorted := slices.Clone(v.active)
	slices.SortFunc(sorted, compare)
	has := map[int]bool{}
	for _, pod := range slices.Backward(sorted) { // of two with an index the one stays that would go last
		if i := indexOf(pod); !tracked(pod) || !validIndex(j, pod) || indexed(j) && has[i] {
			useless = append(useless, pod)
		} else {
			has[i] = true
			left = append(left, pod)
		}
	}
	slices.Reverse(left)
	more := len(v.active) - v.wanted(j) - len(useless)
	if _, said := completions(j); !said && v.succeeded > 0 && !suspended(j) {
		more = 0 // whatever runs, runs
	}
	return append(useless, left[:max(0, more)]...)
}

// create are the pods that are to be made now, and how long others have to wait; 0: none has.
func (v view) create(s State) (all []Missing, wait time.Duration) {
	j := s.Job
	keep := v.active
	if replacesFailedOnly(j) {
		keep = slices.Clone(keep)
		for _, pod := range s.Pods {
			if terminating(pod) && !failed(j, pod) {
				keep = append(keep, pod)
			}
		}
	}
	few := min(v.wanted(j)-len(keep), burst)
	if few <= 0 {
		return nil, 0
	}
	perIndex := j.Spec.BackoffLimitPerIndex != nil
	if wait = s.Failures.delay(s.Now); wait > 0 && !perIndex {
		return nil, wait
	}
	if !indexed(j) {
		return slices.Repeat([]Missing{{Index: none}}, few), 0
	}
	n, _ := completions(j)
	wait = 0
	for _, i := range v.completed.with(v.lost).with(taken(keep)).missing(few, n) {
		next := Missing{Index: i}
		if perIndex {
			if next.Instead = v.awaited[i]; next.Instead != nil {
				if d := delay(allFailures(next.Instead)+1, finished(next.Instead), s.Now); d > 0 {
					if wait == 0 || d < wait {
						wait = d
					}
					continue
				}
			}
		}
		all = append(all, next)
	}
	return all, wait
}

func conditionOf(j *batchv1.Job, kind batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range j.Status.Conditions {
		if j.Status.Conditions[i].Type == kind {
			return &j.Status.Conditions[i]
		}
	}
	return nil
}

func condition(kind batchv1.JobConditionType, is corev1.ConditionStatus, reason, message string, now time.Time) *batchv1.JobCondition {
	at := metav1.NewTime(now)
	return &batchv1.JobCondition{Type: kind, Status: is, Reason: reason, Message: message, LastProbeTime: at, LastTransitionTime: at}
}

// Finished is the condition with which a job has finished, Complete or Failed; nil: it has not.
func Finished(j *batchv1.Job) *batchv1.JobCondition {
	for _, kind := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed} {
		if c := conditionOf(j, kind); c != nil && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}
