package job

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"monopod.dev/monopod/internal/pods"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// job is one that runs, of three completions of which two run at a time.
func job(change ...func(*batchv1.Job)) *batchv1.Job {
	started := metav1.NewTime(now.Add(-time.Hour))
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "n", UID: "j"},
		Spec: batchv1.JobSpec{
			Parallelism: ptr.To[int32](2), Completions: ptr.To[int32](3), BackoffLimit: ptr.To[int32](6), Suspend: new(bool),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c"}}}},
		},
		Status: batchv1.JobStatus{StartTime: &started},
	}
	for _, c := range change {
		c(j)
	}
	return j
}

func ofIndexes(completions int32) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.Spec.CompletionMode, j.Spec.Completions = ptr.To(batchv1.IndexedCompletion), &completions
	}
}

func perIndex(limit int32) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Spec.BackoffLimitPerIndex = &limit }
}

func workQueue(j *batchv1.Job) { j.Spec.Completions = nil }

func suspendedJob(j *batchv1.Job) { *j.Spec.Suspend = true }

func had(kind batchv1.JobConditionType, is corev1.ConditionStatus) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: kind, Status: is, Reason: "Before", Message: "before"})
	}
}

func rules(all ...batchv1.PodFailurePolicyRule) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: all} }
}

func onCodes(action batchv1.PodFailurePolicyAction, op batchv1.PodFailurePolicyOnExitCodesOperator, codes ...int32) batchv1.PodFailurePolicyRule {
	return batchv1.PodFailurePolicyRule{Action: action, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: op, Values: codes}}
}

// podsOf are pods in short, "NAME STATE ..." each: a name that may end with "#INDEX"; then what is so of them: running, ready, pending, ok, failed, exit=CODE,
// ending, forced (to end at once), free (of the finalizer), ago=SECONDS since they ended, before=FAILURES of the index, disrupted, restarts=N.
func podsOf(t *testing.T, all ...string) (made []*corev1.Pod) {
	t.Helper()
	for _, text := range all {
		words := strings.Fields(text)
		name, index, has := strings.Cut(words[0], "#")
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "n", UID: types.UID(name), Finalizers: []string{batchv1.JobTrackingFinalizer}, Annotations: map[string]string{},
		}}
		if has {
			p.Annotations[batchv1.JobCompletionIndexAnnotation] = index
		}
		exit, ago := int32(1), time.Minute*30
		for _, w := range words[1:] {
			key, value, _ := strings.Cut(w, "=")
			switch key {
			case "running":
				p.Status.Phase = corev1.PodRunning
			case "ready":
				p.Status.Phase = corev1.PodRunning
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
			case "pending":
				p.Status.Phase = corev1.PodPending
			case "ok":
				p.Status.Phase, exit = corev1.PodSucceeded, 0
			case "failed":
				p.Status.Phase = corev1.PodFailed
			case "exit":
				fmt.Sscan(value, &exit)
			case "ending":
				p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: now.Add(30 * time.Second)}, ptr.To[int64](30)
			case "forced":
				p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: now}, new(int64)
			case "free":
				p.Finalizers = nil
			case "ago":
				var n int
				fmt.Sscan(value, &n)
				ago = time.Duration(n) * time.Second
			case "before":
				p.Annotations[batchv1.JobIndexFailureCountAnnotation] = value
			case "disrupted":
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue})
			case "restarts":
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c"}}
				fmt.Sscan(value, &p.Status.ContainerStatuses[0].RestartCount)
			default:
				t.Fatalf("pod %q: %q is not known", text, w)
			}
		}
		if pods.Ended(p) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{ExitCode: exit, FinishedAt: metav1.NewTime(now.Add(-ago))},
			}}}
		}
		made = append(made, p)
	}
	return made
}

// told is a plan, and the record of it when it was carried out, in one line.
func told(s State, p Plan) string {
	var words []string
	say := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	if len(p.Create) > 0 {
		var all []int
		for _, m := range p.Create {
			all = append(all, m.Index)
		}
		if all[0] == none {
			say("create %d", len(all))
		} else {
			say("create %v", all)
		}
	}
	names := func(pods []*corev1.Pod) string {
		var all []string
		for _, pod := range pods {
			all = append(all, pod.Name)
		}
		slices.Sort(all)
		return strings.Join(all, ",")
	}
	if len(p.Delete) > 0 {
		word := "delete"
		if p.Release {
			word = "release"
		}
		say("%s %s", word, names(p.Delete))
	}
	if p.Again > 0 {
		say("again %v", p.Again)
	}
	r := Track(s, p, Done{Created: len(p.Create), Deleted: p.Delete})
	status := r.Status
	say("active %d", status.Active)
	if *status.Ready > 0 {
		say("ready %d", *status.Ready)
	}
	if *status.Terminating > 0 {
		say("terminating %d", *status.Terminating)
	}
	if u := status.UncountedTerminatedPods; len(u.Succeeded)+len(u.Failed) > 0 {
		say("uncounted %v %v", u.Succeeded, u.Failed)
	}
	if len(r.Free) > 0 {
		say("free %s", names(r.Free))
	}
	for _, c := range status.Conditions {
		say("%s=%s:%s", c.Type, c.Status, c.Reason)
	}
	if end := r.Settle(&status, r.Free, s.Now); end != nil {
		say("then %s:%s", end.Type, end.Reason)
	}
	if status.StartTime == nil {
		say("not started")
	}
	say("%d/%d", status.Succeeded, status.Failed)
	if status.CompletedIndexes != "" {
		say("completed %s", status.CompletedIndexes)
	}
	if f := status.FailedIndexes; f != nil && *f != "" {
		say("lost %s", *f)
	}
	return strings.Join(words, "; ")
}

func TestDecide(t *testing.T) {
	all := func(changes ...func(*batchv1.Job)) *batchv1.Job { return job(changes...) }
	succeeded := func(n, failed int32) func(*batchv1.Job) {
		return func(j *batchv1.Job) { j.Status.Succeeded, j.Status.Failed = n, failed }
	}
	const ignore, count, failJob, failIndex = batchv1.PodFailurePolicyActionIgnore, batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionFailIndex
	const in, notIn = batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn
	for name, c := range map[string]struct {
		job  *batchv1.Job
		pods []string
		want string
	}{
		"new":                     {all(func(j *batchv1.Job) { j.Status.StartTime = nil }), nil, "create 2; active 2; 0/0"},
		"new, suspended":          {all(suspendedJob, func(j *batchv1.Job) { j.Status.StartTime = nil }), nil, "active 0; Suspended=True:JobSuspended; not started; 0/0"},
		"full":                    {all(), []string{"a ready", "b pending"}, "active 2; ready 1; 0/0"},
		"one succeeds":            {all(), []string{"a ok", "b running"}, "create 1; active 2; uncounted [a] []; free a; 1/0"},
		"the last ones":           {all(succeeded(2, 0)), []string{"a running"}, "active 1; 2/0"},
		"fewer left than may run": {all(succeeded(2, 0)), nil, "create 1; active 1; 2/0"},
		"done":                    {all(succeeded(2, 1)), []string{"a ok"}, "active 0; uncounted [a] []; free a; SuccessCriteriaMet=True:CompletionsReached; then Complete:CompletionsReached; 3/1"},
		"done, one too many":      {all(succeeded(3, 0)), []string{"a ready"}, "release a; active 0; terminating 1; SuccessCriteriaMet=True:CompletionsReached; 3/0"},
		"done, one ends":          {all(succeeded(3, 0), had(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue)), []string{"a running ending free"}, "active 0; terminating 1; SuccessCriteriaMet=True:Before; 3/0"},
		"done, all have ended":    {all(succeeded(3, 0), had(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue)), nil, "active 0; SuccessCriteriaMet=True:Before; then Complete:Before; 3/0"},
		"none wanted":             {all(func(j *batchv1.Job) { j.Spec.Completions = new(int32) }), nil, "active 0; SuccessCriteriaMet=True:CompletionsReached; then Complete:CompletionsReached; 0/0"},
		"fewer may run":           {all(func(j *batchv1.Job) { *j.Spec.Parallelism = 1 }), []string{"a ready", "b pending"}, "release b; active 1; ready 1; terminating 1; 0/0"},
		"none may run":            {all(func(j *batchv1.Job) { *j.Spec.Parallelism = 0 }), nil, "active 0; 0/0"},
		"without finalizer":       {all(), []string{"a ready", "b ready free"}, "release b; active 1; ready 1; terminating 1; 0/0"},
		"counted before":          {all(succeeded(1, 0)), []string{"a ok free", "b running", "c running"}, "active 2; 1/0"},
		"counted, the last step": {all(succeeded(0, 0), func(j *batchv1.Job) {
			j.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{Succeeded: []types.UID{"a"}, Failed: []types.UID{"x"}}
		}), []string{"a ok free", "b running", "c running"}, "active 2; 1/1"},
		"counted, the middle step": {all(func(j *batchv1.Job) {
			j.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{Succeeded: []types.UID{"a"}}
		}), []string{"a ok", "b running", "c running"}, "active 2; uncounted [a] []; free a; 1/0"},
		"fails, long ago":           {all(), []string{"a failed", "b running"}, "create 1; active 2; uncounted [] [a]; free a; 0/1"},
		"fails now":                 {all(), []string{"a failed ago=0", "b running"}, "again 10s; active 1; uncounted [] [a]; free a; 0/1"},
		"fails thrice":              {all(), []string{"a failed ago=9", "b failed ago=15", "c failed free ago=20"}, "again 31s; active 0; uncounted [] [a b]; free a,b; 0/2"},
		"fails, then succeeds":      {all(), []string{"a failed ago=5", "b ok ago=4"}, "create 2; active 2; uncounted [b] [a]; free a,b; 1/1"},
		"goes":                      {all(), []string{"a running ending ago=0", "b running"}, "again 10s; active 1; terminating 1; uncounted [] [a]; free a; 0/1"},
		"goes, and keeps its place": {all(func(j *batchv1.Job) { j.Spec.PodReplacementPolicy = ptr.To(batchv1.Failed) }), []string{"a running ending", "b running"}, "active 1; terminating 1; 0/0"},
		"is forced to go": {all(func(j *batchv1.Job) { j.Spec.PodReplacementPolicy = ptr.To(batchv1.Failed) }), []string{"a running forced", "b running"},
			"again 10s; active 1; terminating 1; uncounted [] [a]; free a; 0/1"},
		"was forced to go": {all(func(j *batchv1.Job) { j.Spec.PodReplacementPolicy = ptr.To(batchv1.Failed) }), []string{"a pending forced free", "b running"},
			"create 1; active 2; terminating 1; 0/0"},
		"has succeeded, is forced to go": {all(func(j *batchv1.Job) { j.Spec.PodReplacementPolicy = ptr.To(batchv1.Failed) }), []string{"a ok forced", "b running"},
			"create 1; active 2; uncounted [a] []; free a; 1/0"},
		"is forced to go, too often": {all(succeeded(0, 6), rules(onCodes(ignore, in, 3))), []string{"a pending forced", "b running"},
			"delete b; active 0; terminating 2; uncounted [] [a b]; free a,b; FailureTarget=True:BackoffLimitExceeded; 0/8"},
		"was released":    {all(), []string{"a running ending free", "b running"}, "create 1; active 2; terminating 1; 0/0"},
		"fails too often": {all(succeeded(0, 6)), []string{"a failed ago=0", "b running"}, "delete b; active 0; terminating 1; uncounted [] [a b]; free a,b; FailureTarget=True:BackoffLimitExceeded; 0/8"},
		"has failed":      {all(succeeded(1, 7), had(batchv1.JobFailureTarget, corev1.ConditionTrue)), []string{"a failed free", "b ok"}, "active 0; uncounted [b] []; free b; FailureTarget=True:Before; then Failed:Before; 2/7"},
		"restarts": {all(func(j *batchv1.Job) {
			j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
			*j.Spec.BackoffLimit = 2
		}), []string{"a running restarts=1", "b running"}, "active 2; 0/0"},
		"restarts too often": {all(func(j *batchv1.Job) {
			j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
			*j.Spec.BackoffLimit = 2
		}), []string{"a running restarts=1", "b running restarts=1"}, "delete a,b; active 0; terminating 2; uncounted [] [a b]; free a,b; FailureTarget=True:BackoffLimitExceeded; 0/2"},
		"may not restart": {all(func(j *batchv1.Job) {
			j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
			*j.Spec.BackoffLimit = 0
		}), []string{"a running", "b running"}, "active 2; 0/0"},
		"has time":        {all(func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = ptr.To[int64](3610) }), []string{"a running", "b running"}, "again 10s; active 2; 0/0"},
		"has no time":     {all(func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = ptr.To[int64](3600) }), []string{"a running"}, "delete a; active 0; terminating 1; uncounted [] [a]; free a; FailureTarget=True:DeadlineExceeded; 0/1"},
		"suspended":       {all(suspendedJob), []string{"a ready", "b pending", "c ok"}, "release a,b; active 0; terminating 2; uncounted [c] []; free c; Suspended=True:JobSuspended; not started; 1/0"},
		"stays suspended": {all(suspendedJob, had(batchv1.JobSuspended, corev1.ConditionTrue)), []string{"a failed ago=0"}, "active 0; uncounted [] [a]; free a; Suspended=True:Before; 0/1"},
		"resumed":         {all(had(batchv1.JobSuspended, corev1.ConditionTrue), func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = ptr.To[int64](5) }), nil, "create 2; again 5s; active 2; Suspended=False:JobResumed; 0/0"},
		"was resumed":     {all(had(batchv1.JobSuspended, corev1.ConditionFalse)), nil, "create 2; active 2; Suspended=False:Before; 0/0"},
		"deleted":         {all(func(j *batchv1.Job) { j.DeletionTimestamp = &metav1.Time{Time: now} }), []string{"a running", "b failed"}, "active 1; uncounted [] [b]; free a,b; 0/1"},

		"queue":                    {all(workQueue), nil, "create 2; active 2; 0/0"},
		"queue, found empty":       {all(workQueue), []string{"a ok", "b running"}, "active 1; uncounted [a] []; free a; 1/0"},
		"queue, found empty twice": {all(workQueue), []string{"a ok", "b ok"}, "active 0; uncounted [a b] []; free a,b; SuccessCriteriaMet=True:CompletionsReached; then Complete:CompletionsReached; 2/0"},
		"queue, one fails then":    {all(workQueue, succeeded(1, 0)), []string{"b failed"}, "active 0; uncounted [] [b]; free b; SuccessCriteriaMet=True:CompletionsReached; then Complete:CompletionsReached; 1/1"},

		"indexed":               {all(ofIndexes(3)), nil, "create [0 1]; active 2; 0/0"},
		"indexed, some are":     {all(ofIndexes(6), func(j *batchv1.Job) { j.Status.CompletedIndexes = "0,2"; *j.Spec.Parallelism = 4 }), []string{"b#1 running", "d#3 ok"}, "create [4 5]; active 3; free d; 3/0; completed 0,2,3"},
		"indexed, done":         {all(ofIndexes(3), func(j *batchv1.Job) { j.Status.CompletedIndexes = "0,2" }), []string{"b#1 ok", "d#1 ok"}, "active 0; free b,d; SuccessCriteriaMet=True:CompletionsReached; then Complete:CompletionsReached; 3/0; completed 0-2"},
		"indexed, two of one":   {all(ofIndexes(3)), []string{"a#0 pending", "b#0 ready", "c#7 ready", "d ready", "e#1 ready"}, "release a,c,d; active 2; ready 2; terminating 3; 0/0"},
		"indexed, smaller":      {all(ofIndexes(2), func(j *batchv1.Job) { j.Status.CompletedIndexes, j.Status.Succeeded = "0,2-4", 4 }), []string{"b#1 running", "f#5 running", "g#6 ok"}, "release f; active 1; terminating 1; free g; 1/0; completed 0"},
		"indexed, fails":        {all(ofIndexes(3)), []string{"a#0 failed ago=5", "b#1 running"}, "again 5s; active 1; uncounted [] [a]; free a; 0/1"},
		"indexed, fails for it": {all(ofIndexes(3)), []string{"a#0 failed", "b#1 running"}, "create [0]; active 2; uncounted [] [a]; free a; 0/1"},
		"indexed, goes, in place": {all(ofIndexes(3), func(j *batchv1.Job) { j.Spec.PodReplacementPolicy = ptr.To(batchv1.Failed) }),
			[]string{"a#0 running ending"}, "create [1]; active 1; terminating 1; 0/0"},

		"per index, fails now":      {all(ofIndexes(3), perIndex(1)), []string{"a#0 failed ago=5", "b#1 running"}, "again 5s; active 1; 0/0"},
		"per index, fails":          {all(ofIndexes(3), perIndex(1)), []string{"a#0 failed", "b#1 running"}, "create [0]; active 2; 0/0"},
		"per index, has another":    {all(ofIndexes(3), perIndex(1)), []string{"a#0 failed", "b#1 running", "c#0 running before=1"}, "active 2; uncounted [] [a]; free a; 0/1"},
		"per index, lost":           {all(ofIndexes(3), perIndex(1)), []string{"c#0 failed before=1 ago=0", "b#1 running"}, "create [2]; active 2; uncounted [] [c]; free c; 0/1; lost 0"},
		"per index, all but lost":   {all(ofIndexes(2), perIndex(0)), []string{"a#0 failed", "b#1 ok"}, "active 0; uncounted [] [a]; free a,b; FailureTarget=True:FailedIndexes; then Failed:FailedIndexes; 1/1; completed 1; lost 0"},
		"per index, too many lost":  {all(ofIndexes(5), perIndex(0), func(j *batchv1.Job) { j.Spec.MaxFailedIndexes = ptr.To[int32](1); j.Status.FailedIndexes = ptr.To("4") }), []string{"a#0 failed", "b#1 running"}, "delete b; active 0; terminating 1; uncounted [] [a b]; free a,b; FailureTarget=True:MaxFailedIndexesExceeded; 0/2; lost 0,4"},
		"per index, the later ones": {all(ofIndexes(3), perIndex(9)), []string{"a#0 failed before=2 ago=5", "b#1 failed ago=4"}, "again 6s; active 0; 0/0"},
		"per index, done, was lost": {all(ofIndexes(3), perIndex(0), func(j *batchv1.Job) { j.Status.FailedIndexes = ptr.To("0") }), []string{"a#0 ok", "b#1 running"}, "create [2]; active 2; free a; 0/0; lost 0"},

		"policy fails the job":   {all(rules(onCodes(ignore, in, 3), onCodes(failJob, in, 4, 5))), []string{"a failed exit=5", "b running"}, "delete b; active 0; terminating 1; uncounted [] [a b]; free a,b; FailureTarget=True:PodFailurePolicy; 0/2"},
		"policy ignores":         {all(rules(onCodes(ignore, in, 3)), succeeded(0, 6)), []string{"a failed exit=3", "b running"}, "create 1; active 2; free a; 0/6"},
		"policy counts":          {all(rules(onCodes(count, in, 3), onCodes(ignore, notIn, 7))), []string{"a failed exit=3", "b failed exit=7", "c failed exit=8"}, "create 2; active 2; uncounted [] [a b]; free a,b,c; 0/2"},
		"policy of a disruption": {all(rules(batchv1.PodFailurePolicyRule{Action: ignore, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}})), []string{"a failed disrupted", "b running"}, "create 1; active 2; free a; 0/0"},
		"policy, ending":         {all(rules(onCodes(ignore, in, 3))), []string{"a running ending", "b running"}, "active 1; terminating 1; 0/0"},
		"policy, forced":         {all(rules(onCodes(ignore, in, 3))), []string{"a running forced", "b running"}, "again 10s; active 1; terminating 1; uncounted [] [a]; free a; 0/1"},
		"policy of a disruption, forced": {all(rules(batchv1.PodFailurePolicyRule{Action: ignore, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}})),
			[]string{"a running forced disrupted", "b running"}, "again 10s; active 1; terminating 1; free a; 0/0"},
		"per index, forced": {all(ofIndexes(3), perIndex(1), rules(onCodes(ignore, in, 3))), []string{"a#0 running forced", "b#1 running"}, "again 10s; active 1; terminating 1; 0/0"},
		"per index, forced, has another": {all(ofIndexes(3), perIndex(1), rules(onCodes(ignore, in, 3))), []string{"a#0 running forced", "b#1 running", "c#0 running before=1"},
			"active 2; terminating 1; uncounted [] [a]; free a; 0/1"},
		"per index, forced, lost": {all(ofIndexes(3), perIndex(0), rules(onCodes(ignore, in, 3))), []string{"a#0 running forced", "b#1 running"}, "create [2]; active 2; terminating 1; uncounted [] [a]; free a; 0/1; lost 0"},
		"policy loses an index":   {all(ofIndexes(3), perIndex(9), rules(onCodes(failIndex, in, 3))), []string{"a#0 failed exit=3", "b#1 running"}, "create [2]; active 2; uncounted [] [a]; free a; 0/1; lost 0"},

		"enough": {all(ofIndexes(3), func(j *batchv1.Job) {
			j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: ptr.To("1-2")}, {SucceededIndexes: ptr.To("0-1"), SucceededCount: ptr.To[int32](1)}}}
		}), []string{"a#0 ok", "b#1 running"}, "delete b; active 0; terminating 1; free a,b; SuccessCriteriaMet=True:SuccessPolicy; 1/0; completed 0"},
		"not enough": {all(ofIndexes(3), func(j *batchv1.Job) {
			j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: ptr.To("1-2")}, {SucceededCount: ptr.To[int32](2)}}}
		}), []string{"a#0 ok", "b#1 running"}, "create [2]; active 2; free a; 1/0; completed 0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := State{Job: c.job, Pods: podsOf(t, c.pods...), Now: now}
			s.Failures = Failures{}.with(s.Job, s.Pods)
			before := c.job.DeepCopy()
			if got := told(s, Decide(s)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if before.String() != c.job.String() {
				t.Error("the job, which is the cache's, was changed")
			}
		})
	}
}

// TestHugeNumbers: nothing is as large as a number that a user wrote, and no time is so long that it is over at once.
func TestHugeNumbers(t *testing.T) {
	huge := func(j *batchv1.Job) {
		j.Spec.Parallelism, j.Spec.BackoffLimit, j.Spec.ActiveDeadlineSeconds = ptr.To[int32](math.MaxInt32), ptr.To[int32](math.MaxInt32), ptr.To[int64](math.MaxInt64)
	}
	for name, j := range map[string]*batchv1.Job{
		"without completions":   job(huge, workQueue),
		"with completions":      job(huge, func(j *batchv1.Job) { j.Spec.Completions = ptr.To[int32](math.MaxInt32) }),
		"of indexes":            job(huge, ofIndexes(math.MaxInt32)),
		"with a limit an index": job(huge, ofIndexes(math.MaxInt32), perIndex(math.MaxInt32)),
		"almost complete": job(huge, ofIndexes(math.MaxInt32), func(j *batchv1.Job) {
			j.Status.CompletedIndexes, j.Status.FailedIndexes = "600-2147483646", ptr.To("500-599")
		}),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			p := Decide(State{Job: j, Now: now})
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20 {
				t.Errorf("a round took %d MiB", took>>20)
			}
			if len(p.Create) != burst || p.Outcome != nil {
				t.Errorf("makes %d pods, wants %d; %+v", len(p.Create), burst, p.Outcome)
			}
		})
	}
}
