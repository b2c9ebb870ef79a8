package job

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"monopod.dev/monopod/internal/apiserver/registry/workload"
)

// statusCheck is a look at a new status of a job. Whoever manages jobs writes it (managedBy), so that it is held to what every reader relies on.
//
// Most rules are only asked of what changes: a status that was stored before there was the rule can still be written, and one that a change of the
// specification has made wrong stays so until the job's controller has seen it.
type statusCheck struct {
	job, old *batchv1.Job
	path     *field.Path
	errs     field.ErrorList
}

// validateStatus tells what is wrong with a job's status that replaces old's.
func validateStatus(j, old *batchv1.Job) field.ErrorList {
	c := statusCheck{job: j, old: old, path: field.NewPath("status")}
	c.counts()
	c.uncounted()
	c.contradictions()
	c.oneWay()
	c.times()
	c.finished()
	c.indexes()
	return c.errs
}

// forbid tells of a field with an error message, if asked and wrong.
func (c *statusCheck) forbid(asked, wrong bool, name string, value any, message string) {
	if asked && wrong {
		c.errs = append(c.errs, field.Invalid(c.path.Child(name), value, message))
	}
}

func (c *statusCheck) require(asked, missing bool, name, message string) {
	if asked && missing {
		c.errs = append(c.errs, field.Required(c.path.Child(name), message))
	}
}

// turned: one of the conditions has become True, or is no longer.
func (c *statusCheck) turned(conditions ...batchv1.JobConditionType) bool {
	for _, t := range conditions {
		if is(c.job, t) != is(c.old, t) {
			return true
		}
	}
	return false
}

func (c *statusCheck) counts() {
	now, was := &c.job.Status, &c.old.Status
	c.errs = append(c.errs, workload.NotNegative(c.path, workload.Of("active", now.Active), workload.Of("succeeded", now.Succeeded),
		workload.Of("failed", now.Failed), workload.Optional("ready", now.Ready), workload.Optional("terminating", now.Terminating))...)
	c.forbid(!ptr.Equal(now.Ready, was.Ready) || now.Active != was.Active, now.Ready != nil && *now.Ready > now.Active,
		"ready", now.Ready, "cannot set more ready pods than active")
	c.forbid(true, now.Failed < was.Failed, "failed", now.Failed, "cannot decrease the failed counter")
	// A job with as many pods as completions can be made smaller, and loses what its last indexes have done.
	elastic := isIndexed(&c.job.Spec) && ptr.Equal(c.job.Spec.Completions, c.job.Spec.Parallelism)
	c.forbid(!elastic, now.Succeeded < was.Succeeded, "succeeded", now.Succeeded, "cannot decrease the succeeded counter")
}

// uncounted: each pod is in one of the lists, once.
func (c *statusCheck) uncounted() {
	pods := c.job.Status.UncountedTerminatedPods
	if pods == nil {
		return
	}
	seen := sets.New[types.UID]()
	look := func(list []types.UID, path *field.Path) {
		for i, uid := range list {
			switch {
			case uid == "":
				c.errs = append(c.errs, field.Invalid(path.Index(i), uid, "must not be empty"))
			case seen.Has(uid):
				c.errs = append(c.errs, field.Duplicate(path.Index(i), uid))
			}
			seen.Insert(uid)
		}
	}
	look(pods.Succeeded, c.path.Child("uncountedTerminatedPods", "succeeded"))
	look(pods.Failed, c.path.Child("uncountedTerminatedPods", "failed"))
}

// contradictions are conditions that are True and exclude each other, or without another that comes before.
func (c *statusCheck) contradictions() {
	const complete, failed, target, met = batchv1.JobComplete, batchv1.JobFailed, batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet
	both := func(asked bool, a, b batchv1.JobConditionType) {
		c.forbid(asked, is(c.job, a) && is(c.job, b), "conditions", field.OmitValueType{}, fmt.Sprintf("cannot set %s=True and %s=True conditions", a, b))
	}
	both(c.turned(complete, failed), complete, failed)
	both(c.turned(complete, target), complete, target)
	both(true, met, failed)
	both(true, met, target)
	without := func(asked bool, a, b batchv1.JobConditionType) {
		c.forbid(asked, is(c.job, a) && !is(c.job, b), "conditions", field.OmitValueType{}, fmt.Sprintf("cannot set %s=True condition without the %s=True condition", a, b))
	}
	changed := !ptr.Equal(c.job.Status.FailedIndexes, c.old.Status.FailedIndexes)
	without(c.turned(failed) || changed, failed, target)
	without(c.turned(complete, met) || c.job.Spec.SuccessPolicy != nil, complete, met)
}

// oneWay are the conditions that stay True.
func (c *statusCheck) oneWay() {
	for _, t := range []batchv1.JobConditionType{batchv1.JobFailed, batchv1.JobComplete, batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet} {
		c.forbid(is(c.old, t), !is(c.job, t), "conditions", field.OmitValueType{}, fmt.Sprintf("cannot disable the terminal %s=True condition", t))
	}
	c.forbid(is(c.old, batchv1.JobComplete) && !is(c.old, batchv1.JobSuccessCriteriaMet), is(c.job, batchv1.JobSuccessCriteriaMet),
		"conditions", field.OmitValueType{}, "cannot set SuccessCriteriaMet=True for a job that already is Complete=True")
}

func (c *statusCheck) times() {
	now, was := &c.job.Status, &c.old.Status
	started, completed := !ptr.Equal(now.StartTime, was.StartTime), !ptr.Equal(now.CompletionTime, was.CompletionTime)
	complete := is(c.job, batchv1.JobComplete)
	c.forbid(c.turned(batchv1.JobComplete) || completed, now.CompletionTime != nil && !complete, "completionTime", now.CompletionTime,
		"cannot set completionTime when there is no Complete=True condition")
	c.require(c.turned(batchv1.JobComplete) || completed, now.CompletionTime == nil && complete, "completionTime", "completionTime is required for Complete jobs")
	c.forbid(started || completed, now.StartTime != nil && now.CompletionTime != nil && now.CompletionTime.Before(now.StartTime),
		"completionTime", now.CompletionTime, "must be equal to or after `startTime`")
	c.forbid(completed, now.CompletionTime != nil && was.CompletionTime != nil, "completionTime", now.CompletionTime, "field is immutable")
	// A job that is suspended no more starts anew.
	resumed := is(c.old, batchv1.JobSuspended) && says(c.job, batchv1.JobSuspended, corev1.ConditionFalse)
	c.forbid(started && !resumed, was.StartTime != nil && !ptr.Deref(c.job.Spec.Suspend, false), "startTime", now.StartTime,
		"field is immutable for unsuspended job once set")
}

// finished is what a job that has ended must not have any more, or must have.
func (c *statusCheck) finished() {
	now, was := &c.job.Status, &c.old.Status
	done := is(c.job, batchv1.JobComplete) || is(c.job, batchv1.JobFailed)
	ended := done != (is(c.old, batchv1.JobComplete) || is(c.old, batchv1.JobFailed))
	c.forbid(ended || now.Active != was.Active, done && now.Active > 0, "active", now.Active, "active>0 is invalid for finished job")
	c.forbid(ended || !ptr.Equal(now.Terminating, was.Terminating), done && ptr.Deref(now.Terminating, 0) > 0, "terminating", now.Terminating,
		"terminating>0 is invalid for finished job")
	nothing := ptr.Deref(c.job.Spec.Suspend, false) && c.job.Spec.Completions != nil && *c.job.Spec.Completions == 0 // it ends without a start
	c.require((ended || !ptr.Equal(now.StartTime, was.StartTime)) && !nothing, done && now.StartTime == nil, "startTime", "startTime is required for finished job")
	left := now.UncountedTerminatedPods
	c.forbid(ended || !apiequality.Semantic.DeepEqual(left, was.UncountedTerminatedPods), done && left != nil && len(left.Failed)+len(left.Succeeded) > 0,
		"uncountedTerminatedPods", left, "must be empty for finished job")
}

func (c *statusCheck) indexes() {
	spec, now, was := &c.job.Spec, &c.job.Status, &c.old.Status
	completed, failed := now.CompletedIndexes != was.CompletedIndexes, !ptr.Equal(now.FailedIndexes, was.FailedIndexes)
	c.forbid(completed, now.CompletedIndexes != "" && !isIndexed(spec), "completedIndexes", now.CompletedIndexes,
		"cannot set non-empty completedIndexes when non-indexed completion mode")
	c.forbid(failed, now.FailedIndexes != nil && spec.BackoffLimitPerIndex == nil, "failedIndexes", now.FailedIndexes,
		"cannot set non-null failedIndexes when backoffLimitPerIndex is null")
	if spec.Completions == nil {
		return
	}
	if completed {
		_, err := countIndexes(now.CompletedIndexes, *spec.Completions)
		c.forbid(true, err != nil, "completedIndexes", now.CompletedIndexes, fmt.Sprint(err))
	}
	if now.FailedIndexes == nil {
		return
	}
	if failed && spec.BackoffLimitPerIndex != nil {
		_, err := countIndexes(*now.FailedIndexes, *spec.Completions)
		c.forbid(true, err != nil, "failedIndexes", *now.FailedIndexes, fmt.Sprint(err))
	}
	if failed || completed {
		at, both := overlap(now.CompletedIndexes, *now.FailedIndexes, *spec.Completions)
		c.forbid(true, both, "failedIndexes", *now.FailedIndexes, fmt.Sprintf("the index %d is in completedIndexes, too", at))
	}
}
