package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"monopod.dev/monopod/internal/controllers/catalog"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/test/apitest"
)

var ofJobs = []string{catalog.Job, catalog.PodGC, catalog.GarbageCollector}

// jobs is an API server with a namespace of its own.
type jobs struct {
	*apitest.API
	namespace string
}

func newJobs(t *testing.T) *jobs {
	t.Helper()
	return &jobs{API: apitest.StartIn(t, "batch"), namespace: "batch"}
}

// jobAgent ends pods, and knows how each did.
type jobAgent struct {
	*jobs
	// exit says with which code a pod ends; negative: it runs.
	exit func(*corev1.Pod) int32

	mu    sync.Mutex
	ended map[types.UID]*corev1.Pod
}

// jobAgent plays the agent of all pods until the test ends. They end long ago, so that nobody waits for another one.
func (w *jobs) agent(exit func(*corev1.Pod) int32) *jobAgent {
	w.Helper()
	a := &jobAgent{jobs: w, exit: exit, ended: map[types.UID]*corev1.Pod{}}
	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactory(w.Client, 0)
	changed := func(obj any) { a.play(ctx, obj.(*corev1.Pod)) }
	if _, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: func(_, obj any) { changed(obj) },
	}); err != nil {
		w.Fatal(err)
	}
	factory.StartWithContext(ctx)
	w.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	return a
}

func (a *jobAgent) play(ctx context.Context, pod *corev1.Pod) {
	if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return
	}
	pod = pod.DeepCopy()
	code := a.exit(pod)
	switch {
	case code < 0 && pod.Status.Phase == corev1.PodRunning:
		return
	case code < 0:
		pod.Status.Phase = corev1.PodRunning
	default:
		pod.Status.Phase = map[bool]corev1.PodPhase{true: corev1.PodSucceeded, false: corev1.PodFailed}[code == 0]
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, FinishedAt: metav1.NewTime(time.Now().Add(-time.Hour)),
		}}}}
	}
	_, err := a.Client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	switch {
	case err == nil && code >= 0:
		a.mu.Lock()
		a.ended[pod.UID] = pod
		a.mu.Unlock()
	case err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err):
		a.Errorf("the agent of pod %s: %v", pod.Name, err)
	}
}

// of are how many pods of a job have succeeded and failed.
func (a *jobAgent) of(job string) (succeeded, failed int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, pod := range a.ended {
		switch {
		case pod.Labels[batchv1.JobNameLabel] != job:
		case pod.Status.Phase == corev1.PodSucceeded:
			succeeded++
		default:
			failed++
		}
	}
	return succeeded, failed
}

// everyThird fails every third pod of a job.
func everyThird() func(*corev1.Pod) int32 {
	var mu sync.Mutex
	number, of := map[string]int{}, map[types.UID]int{}
	return func(pod *corev1.Pod) int32 {
		mu.Lock()
		defer mu.Unlock()
		n, ok := of[pod.UID]
		if !ok {
			job := pod.Labels[batchv1.JobNameLabel]
			number[job]++
			n = number[job]
			of[pod.UID] = n
		}
		if n%3 == 2 {
			return 1
		}
		return 0
	}
}

func always(code int32) func(*corev1.Pod) int32 { return func(*corev1.Pod) int32 { return code } }

// job makes a job of so many completions, of which three may run at a time.
func (w *jobs) job(name string, completions int32, change ...func(*batchv1.Job)) *batchv1.Job {
	w.Helper()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{
		Completions: &completions, Parallelism: ptr.To[int32](3), BackoffLimit: ptr.To[int32](100),
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
	}}
	for _, c := range change {
		c(j)
	}
	j, err := w.Client.BatchV1().Jobs(w.namespace).Create(w.Context(), j, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return j
}

func indexed(j *batchv1.Job) { j.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion) }

func (w *jobs) patch(name, format string, args ...any) {
	w.Helper()
	apitest.Patch(w.API, w.Client.BatchV1().Jobs(w.namespace), name, format, args...)
}

func (w *jobs) await(name, what string, wanted func(*batchv1.Job) bool) *batchv1.Job {
	w.Helper()
	return apitest.Become(w.API, jobResource, w.namespace, w.Client.BatchV1().Jobs(w.namespace), name, what, wanted,
		func(j *batchv1.Job) string { return fmt.Sprintf("%+v", j.Status) })
}

// ends waits until a job has ended with a condition, and checks its reason.
func (w *jobs) ends(name string, kind batchv1.JobConditionType, reason string) *batchv1.Job {
	w.Helper()
	var is batchv1.JobCondition
	j := w.await(name, string(kind), func(j *batchv1.Job) bool {
		for _, is = range j.Status.Conditions {
			if is.Type == kind && is.Status == corev1.ConditionTrue {
				return true
			}
		}
		return false
	})
	if is.Reason != reason {
		w.Errorf("job %s is %s for %s (%s), want %s", name, kind, is.Reason, is.Message, reason)
	}
	return j
}

func (w *jobs) pods(job string) []corev1.Pod {
	w.Helper()
	list, err := w.Client.CoreV1().Pods(w.namespace).List(w.Context(), metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job})
	if err != nil {
		w.Fatal(err)
	}
	return list.Items
}

// counted checks that a job that is complete has counted each pod once, and made none too many, and that its pods are free.
func (a *jobAgent) counted(j *batchv1.Job) {
	a.Helper()
	succeeded, failed := a.of(j.Name)
	if j.Status.Succeeded != *j.Spec.Completions || j.Status.Succeeded != succeeded || j.Status.Failed != failed {
		a.Errorf("job %s of %d completions has counted %d that succeeded and %d that failed; the agent %d and %d",
			j.Name, *j.Spec.Completions, j.Status.Succeeded, j.Status.Failed, succeeded, failed)
	}
	all := a.pods(j.Name)
	if len(all) != int(succeeded+failed) {
		a.Errorf("job %s has %d pods, want %d", j.Name, len(all), succeeded+failed)
	}
	for i := range all {
		if len(all[i].Finalizers) > 0 {
			a.Errorf("pod %s has the finalizers %v", all[i].Name, all[i].Finalizers)
		}
	}
}

func TestJob(t *testing.T) {
	w := newJobs(t)
	a := w.agent(everyThird())
	w.Control(ofJobs...)
	w.job("work", 10)
	w.job("parts", 7, indexed)
	w.job("apart", 7, indexed, func(j *batchv1.Job) { j.Spec.BackoffLimitPerIndex = ptr.To[int32](9) })
	a.counted(w.ends("work", batchv1.JobComplete, batchv1.JobReasonCompletionsReached))
	for _, name := range []string{"parts", "apart"} {
		j := w.ends(name, batchv1.JobComplete, batchv1.JobReasonCompletionsReached)
		a.counted(j)
		if j.Status.CompletedIndexes != "0-6" || j.Status.CompletionTime == nil || ptr.Deref(j.Status.FailedIndexes, "") != "" {
			t.Errorf("status %+v", j.Status)
		}
		for _, pod := range w.pods(name) {
			index := pod.Labels[batchv1.JobCompletionIndexAnnotation]
			if pod.Spec.Hostname != name+"-"+index || pod.Annotations[batchv1.JobCompletionIndexAnnotation] != index ||
				!strings.HasPrefix(pod.Name, name+"-"+index+"-") || pod.Spec.Containers[0].Env[0].Name != "JOB_COMPLETION_INDEX" {
				t.Errorf("pod %+v", pod)
			}
		}
	}
}

func TestJobFails(t *testing.T) {
	w := newJobs(t)
	w.agent(func(pod *corev1.Pod) int32 {
		if pod.Labels[batchv1.JobNameLabel] == "late" {
			return -1
		}
		return 3
	})
	w.Control(ofJobs...)
	w.job("often", 1, func(j *batchv1.Job) { j.Spec.BackoffLimit = ptr.To[int32](2) })
	w.job("late", 2, func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = ptr.To[int64](1) })
	w.job("lost", 2, indexed, func(j *batchv1.Job) { j.Spec.BackoffLimitPerIndex = ptr.To[int32](1) })
	w.job("policy", 1, func(j *batchv1.Job) {
		j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{Action: batchv1.PodFailurePolicyActionFailJob,
			OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{3}}}}}
	})
	for name, want := range map[string]struct {
		reason string
		failed int32
	}{
		"often": {batchv1.JobReasonBackoffLimitExceeded, 3}, "late": {batchv1.JobReasonDeadlineExceeded, 2},
		"lost": {batchv1.JobReasonFailedIndexes, 4}, "policy": {batchv1.JobReasonPodFailurePolicy, 1},
	} {
		if j := w.ends(name, batchv1.JobFailed, want.reason); j.Status.Failed != want.failed || j.Status.Active != 0 {
			t.Errorf("job %s: %+v", name, j.Status)
		}
	}
	var told map[string]string
	events := corev1.SchemeGroupVersion.WithResource("events")
	w.AwaitChange(func(ctx context.Context) bool {
		list, err := w.Client.CoreV1().Events(w.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Job,type=Warning"})
		if err != nil {
			t.Fatal(err)
		}
		told = map[string]string{}
		for _, e := range list.Items {
			told[e.InvolvedObject.Name] = e.Reason
		}
		return len(told) == 4
	}, func() string { return fmt.Sprintf("events %v", told) }, events, w.namespace)
}

func TestJobSuspend(t *testing.T) {
	w := newJobs(t)
	a := w.agent(always(-1))
	w.Control(ofJobs...)
	w.job("work", 4)
	running := func(j *batchv1.Job) bool { return j.Status.Active == 3 && j.Status.StartTime != nil }
	w.await("work", "running", running)
	w.patch("work", `{"spec":{"suspend":true}}`)
	j := w.await("work", "suspended", func(j *batchv1.Job) bool { return j.Status.Active == 0 && *j.Status.Terminating == 0 })
	if c := j.Status.Conditions; len(c) != 1 || c[0].Type != batchv1.JobSuspended || c[0].Reason != "JobSuspended" || j.Status.StartTime != nil || j.Status.Failed != 0 {
		t.Errorf("suspended, it is %+v", j.Status)
	}
	w.patch("work", `{"spec":{"suspend":false}}`)
	w.await("work", "running again", running)
	a.mu.Lock()
	a.exit = always(0)
	a.mu.Unlock()
	for _, pod := range w.pods("work") {
		a.play(t.Context(), &pod)
	}
	a.counted(w.ends("work", batchv1.JobComplete, batchv1.JobReasonCompletionsReached))
}

// TestOwnersOfJobs: pods whose job goes, or is somebody else's, keep the finalizer no longer than they have to; pods without a job are taken over.
func TestOwnersOfJobs(t *testing.T) {
	w := newJobs(t)
	w.agent(always(-1))
	w.Control(ofJobs...)
	w.job("leaves", 1)
	w.await("leaves", "running", func(j *batchv1.Job) bool { return j.Status.Active == 1 })
	pod := w.pods("leaves")[0]
	if err := w.Client.BatchV1().Jobs(w.namespace).Delete(t.Context(), "leaves", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)}); err != nil {
		t.Fatal(err)
	}
	w.Await(podResource, w.namespace, pod.Name, "free", func(o *metav1.PartialObjectMetadata) bool {
		return o != nil && len(o.Finalizers) == 0 && len(o.OwnerReferences) == 0
	})

	takes := w.job("takes", 1, func(j *batchv1.Job) {
		j.Spec.ManualSelector = ptr.To(true)
		j.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{batchv1.JobNameLabel: "leaves"}}
		j.Spec.Template.Labels = j.Spec.Selector.MatchLabels
	})
	w.Await(podResource, w.namespace, pod.Name, "taken over", func(o *metav1.PartialObjectMetadata) bool {
		return len(o.Finalizers) == 1 && metav1.IsControlledBy(o, takes)
	})
	w.await("takes", "running", func(j *batchv1.Job) bool { return j.Status.Active == 1 })
	if n := len(w.pods("leaves")); n != 1 {
		t.Errorf("there are %d pods, want the one that was taken over", n)
	}
	if err := w.Client.BatchV1().Jobs(w.namespace).Delete(t.Context(), "takes", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}); err != nil {
		t.Fatal(err)
	}
	w.AwaitGone(podResource, w.namespace, pod.Name)
	w.AwaitGone(jobResource, w.namespace, "takes")

	w.job("others", 1, func(j *batchv1.Job) { j.Spec.ManagedBy = ptr.To("example.com/other") })
	w.job("last", 0)
	w.ends("last", batchv1.JobComplete, batchv1.JobReasonCompletionsReached)
	if n := len(w.pods("others")); n != 0 {
		t.Errorf("a job that others manage has %d pods", n)
	}
}

// TestJobStopsAtEveryStep: a controller that ends at any step, and begins anew, counts each pod once and makes none twice.
func TestJobStopsAtEveryStep(t *testing.T) {
	w := newJobs(t)
	a := w.agent(everyThird())
	for _, step := range []string{"create", "created", "free", "freed", "tell", "told"} {
		for _, nth := range []int{1, 4} {
			work, parts, apart := fmt.Sprintf("work-%s-%d", step, nth), fmt.Sprintf("parts-%s-%d", step, nth), fmt.Sprintf("apart-%s-%d", step, nth)
			w.stopAt(step, nth, func() {
				w.job(work, 5)
				w.job(parts, 5, indexed)
				w.job(apart, 5, indexed, func(j *batchv1.Job) { j.Spec.BackoffLimitPerIndex = ptr.To[int32](9) })
			})
			stop := w.Control(ofJobs...)
			for _, name := range []string{work, parts, apart} {
				a.counted(w.ends(name, batchv1.JobComplete, batchv1.JobReasonCompletionsReached))
			}
			stop()
		}
	}
}

// TestJobStopsWhileSuspending: pods that were about to be deleted are, and none of them is a failure.
func TestJobStopsWhileSuspending(t *testing.T) {
	w := newJobs(t)
	w.agent(always(-1))
	for _, step := range []string{"free", "freed", "delete", "deleted", "tell", "told"} {
		stop := w.Control(ofJobs...)
		w.job(step, 5)
		w.await(step, "running", func(j *batchv1.Job) bool { return j.Status.Active == 3 })
		stop()
		w.stopAt(step, 2, func() { w.patch(step, `{"spec":{"suspend":true}}`) })
		stop = w.Control(ofJobs...)
		w.await(step, "suspended", func(j *batchv1.Job) bool {
			return j.Status.Active == 0 && *j.Status.Terminating == 0 && j.Status.Failed == 0 && len(j.Status.Conditions) == 1
		})
		if left := w.pods(step); len(left) > 0 {
			t.Errorf("%s: %d pods are left", step, len(left))
		}
		stop()
	}
}

// stopAt runs the controllers until they come to a step for the nth time, and ends them there.
func (w *jobs) stopAt(step string, nth int, meanwhile func()) {
	w.Helper()
	reached, over := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	hits := 0
	disarm := failpoint.Arm("controllers/job/"+step, func() error {
		mu.Lock()
		hits++
		is := hits
		mu.Unlock()
		if is < nth {
			return nil
		}
		if is == nth {
			close(reached)
		}
		<-over
		return errors.New("the end")
	})
	defer disarm()
	stop := w.Control(ofJobs...)
	meanwhile()
	select {
	case <-reached:
	case <-time.After(apitest.Timeout):
		w.Errorf("step %s is not reached %d times", step, nth)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stop()
	}()
	// Whatever is still done at other steps ends with the context; then the one that waits may go on, and finds that all is over.
	time.AfterFunc(50*time.Millisecond, func() { close(over) })
	<-ended
}
