package controllers_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod.dev/monopod/internal/controllers/catalog"
	"monopod.dev/monopod/internal/pods"
	"monopod.dev/monopod/test/apitest"
)

// budgets is an API server with controllers, and a namespace of its own.
type budgets struct {
	*apitest.API
	namespace string
}

func newBudgets(t *testing.T) *budgets {
	t.Helper()
	return &budgets{API: apitest.StartIn(t, "apps"), namespace: "apps"}
}

// budget makes one for the pods of an application.
func (w *budgets) budget(name, app string, minAvailable, maxUnavailable string) {
	w.Helper()
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
	}
	for of, value := range map[**intstr.IntOrString]string{&b.Spec.MinAvailable: minAvailable, &b.Spec.MaxUnavailable: maxUnavailable} {
		if value != "" {
			parsed := intstr.Parse(value)
			*of = &parsed
		}
	}
	if _, err := w.Client.PolicyV1().PodDisruptionBudgets(w.namespace).Create(w.Context(), b, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// await waits until the status of a budget is as told.
func (w *budgets) await(name, want string) *policyv1.PodDisruptionBudget {
	w.Helper()
	var last *policyv1.PodDisruptionBudget
	w.AwaitChange(func(ctx context.Context) bool {
		b, err := w.Client.PolicyV1().PodDisruptionBudgets(w.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			w.Fatal(err)
		}
		last = b
		return tellBudget(b) == want
	}, func() string {
		return fmt.Sprintf("budget %s is %q, not %q: %+v", name, tellBudget(last), want, last.Status)
	},
		policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"), w.namespace)
	return last
}

func tellBudget(b *policyv1.PodDisruptionBudget) string {
	condition := meta.FindStatusCondition(b.Status.Conditions, policyv1.DisruptionAllowedCondition)
	if condition == nil {
		return "nothing yet"
	}
	s := fmt.Sprintf("%d of %d healthy, %d wanted, %d may go: %s", b.Status.CurrentHealthy, b.Status.ExpectedPods, b.Status.DesiredHealthy, b.Status.DisruptionsAllowed, condition.Reason)
	for pod := range b.Status.DisruptedPods {
		s += ", leaving " + pod
	}
	return s
}

// event waits for one of a reason about an object.
func (w *budgets) event(name, reason string) {
	w.Helper()
	var last string
	w.AwaitChange(func(ctx context.Context) bool {
		all, err := w.Client.CoreV1().Events(w.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
		if err != nil {
			w.Fatal(err)
		}
		last = ""
		for _, e := range all.Items {
			if e.Reason == reason {
				return true
			}
			last += " " + e.Reason
		}
		return false
	}, func() string { return fmt.Sprintf("%s has no event %s, but%s", name, reason, last) }, corev1.SchemeGroupVersion.WithResource("events"), w.namespace)
}

func (w *budgets) deployment(name string, replicas int32) {
	w.Helper()
	of := map[string]string{"app": name}
	if _, err := w.Client.AppsV1().Deployments(w.namespace).Create(w.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: of}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: of}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}},
	}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *budgets) pod(name, app string, owner *metav1.OwnerReference) *corev1.Pod {
	w.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if owner != nil {
		pod.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	pod, err := w.Client.CoreV1().Pods(w.namespace).Create(w.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return pod
}

// TestBudgetOfADeployment: a budget follows its pods, evictions, the size of their deployment, and a controller that begins anew.
func TestBudgetOfADeployment(t *testing.T) {
	w := newBudgets(t)
	w.Agent(everyPod)
	w.Control(catalog.Deployment, catalog.ReplicaSet, catalog.PodGC)
	stop := w.Control(catalog.Disruption)
	w.budget("web", "web", "", "1")
	w.await("web", "0 of 0 healthy, 0 wanted, 0 may go: InsufficientPods")
	w.event("web", "NoPods")
	w.deployment("web", 3)
	w.await("web", "3 of 3 healthy, 2 wanted, 1 may go: SufficientPods")

	list, err := w.Client.CoreV1().Pods(w.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		t.Fatal(err)
	}
	evict := func(name string) error {
		return w.Client.PolicyV1().Evictions(w.namespace).Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}})
	}
	stop() // without it nobody gives anything back
	if err := evict(list.Items[0].Name); err != nil {
		t.Fatal(err)
	}
	if err := evict(list.Items[1].Name); !apierrors.IsTooManyRequests(err) {
		t.Fatalf("the second eviction: %v", err)
	}
	stop = w.Control(catalog.Disruption)
	w.await("web", "3 of 3 healthy, 2 wanted, 1 may go: SufficientPods")

	if _, err := w.Client.AppsV1().Deployments(w.namespace).Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"replicas":5}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.await("web", "5 of 5 healthy, 4 wanted, 1 may go: SufficientPods")
	stop()
	if _, err := w.Client.PolicyV1().PodDisruptionBudgets(w.namespace).Patch(t.Context(), "web", types.MergePatchType,
		[]byte(`{"spec":{"maxUnavailable":null,"minAvailable":"50%"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.Control(catalog.Disruption)
	if b := w.await("web", "5 of 5 healthy, 3 wanted, 2 may go: SufficientPods"); b.Status.ObservedGeneration != b.Generation {
		t.Errorf("observed %d of %d", b.Status.ObservedGeneration, b.Generation)
	}
}

// TestBudgetsOfOwners: pods without an owner that says how many there should be.
func TestBudgetsOfOwners(t *testing.T) {
	w := newBudgets(t)
	w.Agent(everyPod)
	w.Control(catalog.Disruption)
	w.budget("number", "alone", "1", "")
	w.budget("share", "alone", "", "1")
	// The controller has to know both before it meets the pods: it says what is wrong with one when it meets it.
	w.await("number", "0 of 0 healthy, 1 wanted, 0 may go: InsufficientPods")
	w.await("share", "0 of 0 healthy, 0 wanted, 0 may go: InsufficientPods")
	w.pod("one", "alone", nil)
	w.pod("two", "alone", nil)
	w.await("number", "2 of 2 healthy, 1 wanted, 1 may go: SufficientPods")
	w.await("share", "2 of 0 healthy, 0 wanted, 0 may go: InsufficientPods")
	w.event("share", "UnmanagedPods")
	w.event("one", "MultiplePodDisruptionBudgets")

	// Who takes a pod out of a budget by its labels changes that budget.
	if _, err := w.Client.CoreV1().Pods(w.namespace).Patch(t.Context(), "two", types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"other"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.await("number", "1 of 1 healthy, 1 wanted, 0 may go: InsufficientPods")

	// A job has no scale.
	job, err := w.Client.BatchV1().Jobs(w.namespace).Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job"}, Spec: batchv1.JobSpec{
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.pod("job-1", "job", metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job")))
	w.budget("job", "job", "50%", "")
	b := w.await("job", "0 of 0 healthy, 0 wanted, 0 may go: SyncFailed")
	if message := b.Status.Conditions[0].Message; !strings.Contains(message, "jobs.batch does not implement the scale subresource") {
		t.Errorf("message %q", message)
	}
	w.event("job", "CalculateExpectedPodCountFailed")
}

// TestBudgetOfAPodThatIsNotDeleted: who was let go or marked and is not deleted is as the others again.
func TestBudgetOfAPodThatIsNotDeleted(t *testing.T) {
	w := newBudgets(t)
	w.Agent(everyPod)
	w.pod("one", "a", nil)
	w.pod("two", "a", nil)
	w.budget("a", "a", "1", "")
	long := metav1.NewTime(time.Now().Add(-time.Hour))
	b, err := w.Client.PolicyV1().PodDisruptionBudgets(w.namespace).Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b.Status.DisruptedPods = map[string]metav1.Time{"one": long, "two": metav1.Now()}
	if _, err := w.Client.PolicyV1().PodDisruptionBudgets(w.namespace).UpdateStatus(t.Context(), b, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.Control(catalog.Disruption)
	w.await("a", "1 of 2 healthy, 1 wanted, 0 may go: InsufficientPods, leaving two")
	w.event("one", "NotDeleted")

	if _, err := w.Client.CoreV1().Pods(w.namespace).Patch(t.Context(), "one", types.StrategicMergePatchType, fmt.Appendf(nil,
		`{"status":{"conditions":[{"type":"DisruptionTarget","status":"True","reason":"EvictionByEvictionAPI","lastTransitionTime":%q}]}}`, long.UTC().Format(time.RFC3339),
	), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	var last *corev1.PodCondition
	w.AwaitChange(func(ctx context.Context) bool {
		pod, err := w.Client.CoreV1().Pods(w.namespace).Get(ctx, "one", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		last = pods.Condition(&pod.Status, corev1.DisruptionTarget)
		return last.Status == corev1.ConditionFalse && last.Reason == "" && pods.IsTrue(&pod.Status, corev1.PodReady)
	}, func() string { return fmt.Sprintf("the condition is %+v", last) }, corev1.SchemeGroupVersion.WithResource("pods"), w.namespace)
}
