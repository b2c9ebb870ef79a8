package cronjob

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"monopod.dev/monopod/internal/controllers/job"
	"monopod.dev/monopod/internal/pods"
)

var kind = batchv1.SchemeGroupVersion.WithKind("CronJob")

// State is what is known of a cron job. Nothing that was written for it is missing in it.
type State struct {
	CronJob *batchv1.CronJob
	// Jobs are the cron job's, those that have finished too. Gone are the UIDs of jobs of its status that are not there any more.
	Jobs []*batchv1.Job
	Gone map[types.UID]bool
	Now  time.Time
}

// Event is something that is told of a cron job.
type Event struct{ Type, Reason, Message string }

// Plan is what is to be done for a cron job, in this order.
type Plan struct {
	// Delete are jobs that have finished and are not kept any longer, Replace those that make room for the next one.
	Delete, Replace []*batchv1.Job
	// Start is the job that is to be made; nil: none. For is the time that it is for.
	Start *batchv1.Job
	For   time.Time
	// Status is the cron job's when all that is done, but for Start.
	Status batchv1.CronJobStatus
	// Events are told of when the status has been written.
	Events []Event
	// Again is when the next time comes, from now; 0: there is none.
	Again time.Duration
}

// Decide says what is to be done for a cron job.
func Decide(s State) Plan {
	p := Plan{Status: *s.CronJob.Status.DeepCopy()}
	p.lookAtJobs(s)
	p.Delete = old(s.CronJob, s.Jobs)
	for _, j := range p.Delete {
		p.forget(j.UID)
	}
	if len(p.Delete) > 0 && !equality.Semantic.DeepEqual(p.Status, s.CronJob.Status) {
		p.Delete = nil // what they have come to is written down first: nobody finds it when they have gone
		return p
	}
	if s.CronJob.DeletionTimestamp == nil {
		p.lookAtTime(s)
	}
	return p
}

func (p *Plan) warn(reason, format string, args ...any) {
	p.Events = append(p.Events, Event{corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)})
}

func (p *Plan) say(reason, format string, args ...any) {
	p.Events = append(p.Events, Event{corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...)})
}

// forget drops a job from those that are active.
func (p *Plan) forget(uid types.UID) {
	p.Status.Active = slices.DeleteFunc(p.Status.Active, func(r corev1.ObjectReference) bool { return r.UID == uid })
}

// lookAtJobs finds out which jobs have ended.
func (p *Plan) lookAtJobs(s State) {
	for _, j := range s.Jobs {
		end := job.Finished(j)
		is := slices.ContainsFunc(p.Status.Active, func(r corev1.ObjectReference) bool { return r.UID == j.UID })
		switch {
		case end == nil && !is && !named(s.CronJob, j):
			p.warn("UnexpectedJob", "Saw a job that the controller did not create or forgot: %s", j.Name)
		case end != nil && is:
			p.forget(j.UID)
			p.say("SawCompletedJob", "Saw completed job: %s, condition: %v", j.Name, end.Type)
		}
		if end == nil || end.Type != batchv1.JobComplete || j.Status.CompletionTime == nil {
			continue
		}
		if last := p.Status.LastSuccessfulTime; last == nil || j.Status.CompletionTime.After(last.Time) {
			p.Status.LastSuccessfulTime = j.Status.CompletionTime
		}
	}
	for _, r := range slices.Clone(p.Status.Active) {
		if s.Gone[r.UID] {
			p.forget(r.UID)
			p.say("MissingJob", "Active job went missing: %v", r.Name)
		}
	}
}

// named says whether a job's name is one that the controller gives: then it was about to write it down.
func named(cj *batchv1.CronJob, j *batchv1.Job) bool {
	at, err := time.Parse(time.RFC3339, j.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
	return err == nil && j.Name == nameFor(cj, at)
}

// lookAtTime finds out whether a job is to be made now.
func (p *Plan) lookAtTime(s State) {
	cj := s.CronJob
	if zone := cj.Spec.TimeZone; zone != nil {
		if _, err := time.LoadLocation(*zone); err != nil {
			p.warn("UnknownTimeZone", "invalid timeZone: %q: %s", *zone, err)
			return
		}
	}
	if ptr.Deref(cj.Spec.Suspend, false) {
		return
	}
	if hasZone(cj.Spec.Schedule) {
		p.warn("UnsupportedSchedule", "CRON_TZ or TZ used in schedule %q is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details", cj.Spec.Schedule)
	}
	times, err := parse(cj)
	if err != nil {
		p.warn("UnparseableSchedule", "unparseable schedule: %q : %s", cj.Spec.Schedule, err)
		return
	}
	next := times.next(s.Now)
	if next.IsZero() {
		p.warn("InvalidSchedule", "invalid schedule: %s : its time never comes", cj.Spec.Schedule)
		return
	}
	p.Again = max(next.Sub(s.Now), time.Millisecond)
	due := times.last(s.Now)
	if due.IsZero() {
		return
	}
	since := times.anchor
	if limit := cj.Spec.StartingDeadlineSeconds; limit != nil {
		earliest := s.Now.Add(-pods.Seconds(*limit))
		if due.Before(earliest) {
			p.warn("MissSchedule", "Missed scheduled time to start a job: %s", due.UTC().Format(time.RFC1123Z))
			return
		}
		if earliest.After(since) {
			since = earliest
		}
	}
	if times.missedMany(since, s.Now) {
		p.warn("TooManyMissedTimes", "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew")
	}
	p.start(s, due)
}

// start plans the job of a time, unless those that still run do not let it.
func (p *Plan) start(s State, due time.Time) {
	cj := s.CronJob
	name := nameFor(cj, due)
	if i := slices.IndexFunc(s.Jobs, func(j *batchv1.Job) bool { return j.Name == name }); i >= 0 {
		p.started(s.Jobs[i], due) // before somebody could write it down
		return
	}
	switch cj.Spec.ConcurrencyPolicy {
	case batchv1.ForbidConcurrent:
		if len(p.Status.Active) > 0 {
			p.say("JobAlreadyActive", "Not starting job because prior execution is running and concurrency policy is Forbid")
			return
		}
	case batchv1.ReplaceConcurrent:
		for _, r := range p.Status.Active {
			p.Replace = append(p.Replace, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name, UID: r.UID}})
		}
		p.Status.Active = nil
	}
	p.Start, p.For = jobFor(cj, name, due), due
}

// started writes down in the status that there is a job for a time.
func (p *Plan) started(j *batchv1.Job, due time.Time) {
	p.Status.LastScheduleTime = &metav1.Time{Time: due}
	if !slices.ContainsFunc(p.Status.Active, func(r corev1.ObjectReference) bool { return r.UID == j.UID }) && job.Finished(j) == nil {
		p.Status.Active = append(p.Status.Active, corev1.ObjectReference{
			Kind: "Job", APIVersion: batchv1.SchemeGroupVersion.String(), Namespace: j.Namespace, Name: j.Name, UID: j.UID, ResourceVersion: j.ResourceVersion,
		})
	}
}

// nameFor is the name of the job of a time, which is counted in minutes.
func nameFor(cj *batchv1.CronJob, at time.Time) string {
	return fmt.Sprintf("%s-%d", cj.Name, at.Unix()/60)
}

func jobFor(cj *batchv1.CronJob, name string, due time.Time) *batchv1.Job {
	if zone, err := time.LoadLocation(ptr.Deref(cj.Spec.TimeZone, "")); err == nil {
		due = due.In(zone)
	}
	annotations := maps.Clone(cj.Spec.JobTemplate.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[batchv1.CronJobScheduledTimestampAnnotation] = due.Format(time.RFC3339)
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cj.Namespace, Name: name, Labels: maps.Clone(cj.Spec.JobTemplate.Labels), Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cj, kind)},
		},
		Spec: *cj.Spec.JobTemplate.Spec.DeepCopy(),
	}
}

// old are the jobs that have finished and are more than are kept, by when they began.
func old(cj *batchv1.CronJob, jobs []*batchv1.Job) (all []*batchv1.Job) {
	for kind, keep := range map[batchv1.JobConditionType]*int32{
		batchv1.JobComplete: cj.Spec.SuccessfulJobsHistoryLimit, batchv1.JobFailed: cj.Spec.FailedJobsHistoryLimit,
	} {
		if keep == nil {
			continue
		}
		var ended []*batchv1.Job
		for _, j := range jobs {
			if end := job.Finished(j); end != nil && end.Type == kind && j.DeletionTimestamp == nil {
				ended = append(ended, j)
			}
		}
		slices.SortFunc(ended, func(a, b *batchv1.Job) int {
			switch from, to := a.Status.StartTime, b.Status.StartTime; {
			case from == nil && to == nil, from.Equal(to):
				return cmp.Compare(a.Name, b.Name)
			case from == nil:
				return 1
			case to == nil:
				return -1
			default:
				return from.Compare(to.Time)
			}
		})
		all = append(all, ended[:max(0, len(ended)-int(*keep))]...)
	}
	return all
}
