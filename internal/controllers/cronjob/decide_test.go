package cronjob

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// now is ten seconds after a time of most of the tests' schedules.
var now = time.Date(2026, 1, 2, 3, 0, 10, 0, time.UTC)

func at(ago time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-ago)} }

// cronJob is one of every hour, UTC, that was made at half past.
func cronJob(change ...func(*batchv1.CronJob)) *batchv1.CronJob {
	cj := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "n", UID: "c", CreationTimestamp: *at(30 * time.Minute)},
		Spec: batchv1.CronJobSpec{
			Schedule: "0 * * * *", TimeZone: ptr.To("Etc/UTC"), ConcurrencyPolicy: batchv1.AllowConcurrent, Suspend: new(bool),
			SuccessfulJobsHistoryLimit: ptr.To[int32](2), FailedJobsHistoryLimit: ptr.To[int32](1),
		},
	}
	for _, c := range change {
		c(cj)
	}
	return cj
}

func activeJobs(names ...string) func(*batchv1.CronJob) {
	return func(cj *batchv1.CronJob) {
		for _, n := range names {
			cj.Status.Active = append(cj.Status.Active, corev1.ObjectReference{Namespace: "n", Name: n, UID: types.UID(n)})
		}
	}
}

func lastTime(ago time.Duration) func(*batchv1.CronJob) {
	return func(cj *batchv1.CronJob) { cj.Status.LastScheduleTime = at(ago) }
}

// jobOf is a job that has ended with a condition, unless that is empty, and began so many minutes ago.
func jobOf(name string, began int, end batchv1.JobConditionType) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", UID: types.UID(name)}}
	j.Status.StartTime = at(time.Duration(began) * time.Minute)
	if end != "" {
		j.Status.Conditions = []batchv1.JobCondition{{Type: end, Status: corev1.ConditionTrue}}
	}
	if end == batchv1.JobComplete {
		j.Status.CompletionTime = at(time.Duration(began)*time.Minute - time.Second)
	}
	return j
}

// told is a plan in one line.
func told(p Plan) string {
	var words []string
	say := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	for _, j := range p.Delete {
		say("delete %s", j.Name)
	}
	for _, j := range p.Replace {
		say("replace %s", j.Name)
	}
	if p.Start != nil {
		say("start %s", p.For.UTC().Format("02 15:04"))
	}
	for _, r := range p.Status.Active {
		say("active %s", r.Name)
	}
	if last := p.Status.LastScheduleTime; last != nil {
		say("last %s", last.UTC().Format("02 15:04"))
	}
	if last := p.Status.LastSuccessfulTime; last != nil {
		say("success %v ago", now.Sub(last.Time))
	}
	for _, e := range p.Events {
		say("%s", e.Reason)
	}
	if p.Again > 0 {
		say("again %v", p.Again)
	}
	return strings.Join(words, "; ")
}

func TestDecide(t *testing.T) {
	with := cronJob
	policy := func(p batchv1.ConcurrencyPolicy) func(*batchv1.CronJob) {
		return func(cj *batchv1.CronJob) { cj.Spec.ConcurrencyPolicy = p }
	}
	times := func(s string) func(*batchv1.CronJob) { return func(cj *batchv1.CronJob) { cj.Spec.Schedule = s } }
	deadline := func(n int64) func(*batchv1.CronJob) {
		return func(cj *batchv1.CronJob) { cj.Spec.StartingDeadlineSeconds = &n }
	}
	edited := func(ago time.Duration) func(*batchv1.CronJob) {
		return func(cj *batchv1.CronJob) {
			cj.Annotations = map[string]string{scheduleSince: at(ago).UTC().Format(time.RFC3339)}
		}
	}
	const complete, failed = batchv1.JobComplete, batchv1.JobFailed
	this := jobOf(nameFor(with(), now), 0, "")
	this.Annotations = map[string]string{batchv1.CronJobScheduledTimestampAnnotation: now.Format(time.RFC3339)}
	for name, c := range map[string]struct {
		cj   *batchv1.CronJob
		jobs []*batchv1.Job
		gone []types.UID
		want string
	}{
		"its time has come":        {with(), nil, nil, "start 02 03:00; again 59m50s"},
		"its time comes":           {with(lastTime(10 * time.Second)), nil, nil, "last 02 03:00; again 59m50s"},
		"suspended":                {with(func(cj *batchv1.CronJob) { *cj.Spec.Suspend = true }), nil, nil, ""},
		"deleted":                  {with(func(cj *batchv1.CronJob) { cj.DeletionTimestamp = at(0) }), nil, nil, ""},
		"some were missed":         {with(lastTime(5 * time.Hour)), nil, nil, "start 02 03:00; last 01 22:00; again 59m50s"},
		"many were missed":         {with(lastTime(102 * time.Hour)), nil, nil, "start 02 03:00; last 28 21:00; TooManyMissedTimes; again 59m50s"},
		"many, and a deadline":     {with(lastTime(102*time.Hour), deadline(7200)), nil, nil, "start 02 03:00; last 28 21:00; again 59m50s"},
		"too late":                 {with(deadline(9)), nil, nil, "MissSchedule; again 59m50s"},
		"in time":                  {with(deadline(10)), nil, nil, "start 02 03:00; again 59m50s"},
		"edited after its time":    {with(lastTime(5*time.Hour), edited(10*time.Second)), nil, nil, "last 01 22:00; again 59m50s"},
		"edited before its time":   {with(lastTime(5*time.Hour), edited(11*time.Second)), nil, nil, "start 02 03:00; last 01 22:00; again 59m50s"},
		"edited long ago":          {with(lastTime(5*time.Hour), edited(9*time.Hour)), nil, nil, "start 02 03:00; last 01 22:00; again 59m50s"},
		"edited, many were missed": {with(lastTime(102*time.Hour), edited(2*time.Hour)), nil, nil, "start 02 03:00; last 28 21:00; again 59m50s"},
		"edited, too late":         {with(edited(time.Minute), deadline(9)), nil, nil, "MissSchedule; again 59m50s"},
		"edited, never ran":        {with(edited(time.Second)), nil, nil, "again 59m50s"},
		"edited, nobody knows when": {with(lastTime(5*time.Hour), func(cj *batchv1.CronJob) { cj.Annotations = map[string]string{scheduleSince: "soon"} }), nil, nil,
			"start 02 03:00; last 01 22:00; again 59m50s"},
		"every, edited":            {with(times("@every 25m"), edited(26*time.Minute)), nil, nil, "start 02 02:59; again 24m0s"},
		"every":                    {with(times("@every 25m")), nil, nil, "start 02 02:55; again 20m0s"},
		"every, not yet":           {with(times("@every 31m")), nil, nil, "again 1m0s"},
		"in a zone":                {with(times("30 8 * * *"), func(cj *batchv1.CronJob) { cj.Spec.TimeZone = ptr.To("Asia/Kolkata") }), nil, nil, "start 02 03:00; again 23h59m50s"},
		"in a zone, by schedule":   {with(times("TZ=Asia/Kolkata 30 8 * * *"), func(cj *batchv1.CronJob) { cj.Spec.TimeZone = nil }), nil, nil, "start 02 03:00; UnsupportedSchedule; again 23h59m50s"},
		"in no zone":               {with(func(cj *batchv1.CronJob) { cj.Spec.TimeZone = ptr.To("Moon/Sea") }), nil, nil, "UnknownTimeZone"},
		"never":                    {with(times("0 0 31 2 *")), nil, nil, "InvalidSchedule"},
		"nonsense":                 {with(times("TZ=0")), nil, nil, "UnsupportedSchedule; UnparseableSchedule"},
		"one runs":                 {with(activeJobs("a")), []*batchv1.Job{jobOf("a", 60, "")}, nil, "start 02 03:00; active a; again 59m50s"},
		"one runs, forbidden":      {with(activeJobs("a"), policy(batchv1.ForbidConcurrent)), []*batchv1.Job{jobOf("a", 60, "")}, nil, "active a; JobAlreadyActive; again 59m50s"},
		"one ran, forbidden":       {with(activeJobs("a"), policy(batchv1.ForbidConcurrent)), []*batchv1.Job{jobOf("a", 60, complete)}, nil, "start 02 03:00; success 59m59s ago; SawCompletedJob; again 59m50s"},
		"one runs, replaced":       {with(activeJobs("a"), policy(batchv1.ReplaceConcurrent)), []*batchv1.Job{jobOf("a", 60, "")}, nil, "replace a; start 02 03:00; again 59m50s"},
		"one is missing":           {with(activeJobs("a", "b"), lastTime(10*time.Second)), nil, []types.UID{"b"}, "active a; last 02 03:00; MissingJob; again 59m50s"},
		"made, not written down":   {with(policy(batchv1.ForbidConcurrent)), []*batchv1.Job{this}, nil, "active " + this.Name + "; last 02 03:00; again 59m50s"},
		"somebody has made one":    {with(lastTime(10 * time.Second)), []*batchv1.Job{jobOf("mine", 0, "")}, nil, "last 02 03:00; UnexpectedJob; again 59m50s"},
		"history":                  {with(lastTime(10 * time.Second)), []*batchv1.Job{jobOf("a", 9, complete), jobOf("b", 7, complete), jobOf("c", 8, complete), jobOf("d", 5, failed)}, nil, "last 02 03:00; success 6m59s ago"},
		"history, written down":    {with(lastTime(10*time.Second), func(cj *batchv1.CronJob) { cj.Status.LastSuccessfulTime = at(7*time.Minute - time.Second) }), []*batchv1.Job{jobOf("a", 9, complete), jobOf("b", 7, complete), jobOf("c", 8, complete), jobOf("d", 5, failed)}, nil, "delete a; last 02 03:00; success 6m59s ago; again 59m50s"},
		"history, active till now": {with(lastTime(10*time.Second), activeJobs("d")), []*batchv1.Job{jobOf("d", 5, failed), jobOf("e", 4, failed)}, nil, "last 02 03:00; SawCompletedJob"},
	} {
		t.Run(name, func(t *testing.T) {
			s := State{CronJob: c.cj, Jobs: c.jobs, Gone: map[types.UID]bool{}, Now: now}
			for _, uid := range c.gone {
				s.Gone[uid] = true
			}
			before := c.cj.DeepCopy()
			if got := told(Decide(s)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if before.String() != c.cj.String() {
				t.Error("the cron job, which is the cache's, was changed")
			}
		})
	}
}

// TestLast: the last time is what one finds who goes through all of them.
// TestHugeDeadline: a deadline that a time cannot hold is none.
func TestHugeDeadline(t *testing.T) {
	for _, limit := range []int64{math.MaxInt64, math.MaxInt64 / int64(time.Second), 1 << 40} {
		cj := cronJob(func(cj *batchv1.CronJob) { cj.Spec.StartingDeadlineSeconds = &limit })
		if p := Decide(State{CronJob: cj, Now: now}); p.Start == nil {
			t.Errorf("%d s: %s", limit, told(p))
		}
	}
}

func TestLast(t *testing.T) {
	for _, text := range []string{"* * * * *", "0 0 1 1 *", "30 6-16/4 * * 1-5", "*/7 * 29 2 *", "30 2 * * *", "@hourly", "@every 90m"} {
		for _, zone := range []string{"Etc/UTC", "Europe/Berlin", "Australia/Lord_Howe"} {
			cj := &batchv1.CronJob{Spec: batchv1.CronJobSpec{Schedule: text, TimeZone: &zone}}
			for _, created := range []time.Time{time.Date(2024, 2, 28, 23, 59, 59, 0, time.UTC), time.Date(2026, 3, 29, 0, 59, 0, 0, time.UTC), time.Date(2026, 10, 3, 15, 0, 0, 0, time.UTC)} {
				cj.CreationTimestamp = metav1.NewTime(created)
				s, err := parse(cj)
				if err != nil {
					t.Fatal(err)
				}
				for _, later := range []time.Duration{0, time.Second, time.Hour, 26 * time.Hour, 70 * time.Hour} {
					until := created.Add(later)
					var want time.Time
					for next := s.Next(created); !next.After(until); next = s.Next(next) {
						want = next
					}
					if got := s.last(until); !got.Equal(want) {
						t.Errorf("%s %s, from %v on: last %v of %v, want %v", zone, text, created, got, until, want)
					}
				}
			}
		}
	}
}
