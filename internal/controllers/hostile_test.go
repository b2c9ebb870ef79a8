package controllers_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"monopod.dev/monopod/test/apitest"
)

// foe makes objects that are valid and that nobody needs: numbers as large as can be, words as long as can be, owners in circles. None of their pods can be
// made, so that it is the objects alone that controllers have to do with.
type foe struct {
	*apitest.API
	namespace string
}

const huge = math.MaxInt32

// made fails the test unless an object was let in: what is refused troubles no controller.
func made[T any](f foe, what string) func(T, error) T {
	return func(obj T, err error) T {
		f.Helper()
		if err != nil {
			f.Fatalf("%s: %v", what, err)
		}
		return obj
	}
}

// meta has annotations as large as they may be, and a label by which apps claim what has it.
func (f foe) meta(name, app string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}, Annotations: map[string]string{"example.com/words": strings.Repeat("☃\u202e", 40000)}}
}

func (f foe) template(app, image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}}, Spec: corev1.PodSpec{
		PriorityClassName: "nobody-has-made-it", TerminationGracePeriodSeconds: ptr.To[int64](math.MaxInt64), Containers: []corev1.Container{{Name: "c", Image: image}},
	}}
}

func (f foe) selector(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func (f foe) workloads() {
	f.Helper()
	ctx, apps := f.Context(), f.Client.AppsV1()
	long := strings.Repeat("s", 60)
	made[*appsv1.ControllerRevision](f, "a revision")(apps.ControllerRevisions(f.namespace).Create(ctx, &appsv1.ControllerRevision{
		ObjectMeta: f.meta("last", "set"), Revision: math.MaxInt64, Data: runtime.RawExtension{Raw: []byte(`{"spec":{"template":{}}}`)},
	}, metav1.CreateOptions{}))
	made[*appsv1.StatefulSet](f, "a stateful set")(apps.StatefulSets(f.namespace).Create(ctx, &appsv1.StatefulSet{ObjectMeta: f.meta(long, "set"), Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To[int32](huge), Ordinals: &appsv1.StatefulSetOrdinals{Start: huge}, PodManagementPolicy: appsv1.ParallelPodManagement, MinReadySeconds: huge,
		ServiceName: "s", Selector: f.selector("set"), Template: f.template("set", "i"), RevisionHistoryLimit: new(int32),
	}}, metav1.CreateOptions{}))
	made[*appsv1.DaemonSet](f, "a daemon set")(apps.DaemonSets(f.namespace).Create(ctx, &appsv1.DaemonSet{ObjectMeta: f.meta("daemon", "daemon"), Spec: appsv1.DaemonSetSpec{
		MinReadySeconds: huge, Selector: f.selector("daemon"), Template: f.template("daemon", "i"),
		UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{
			MaxSurge: ptr.To(intstr.FromInt32(huge)), MaxUnavailable: ptr.To(intstr.FromInt32(0)),
		}},
	}}, metav1.CreateOptions{}))
	for name, revision := range map[string]string{"now": "1", "before": fmt.Sprint(int64(math.MaxInt64 - 1)), "never": fmt.Sprint(int64(math.MaxInt64))} {
		set := &appsv1.ReplicaSet{ObjectMeta: f.meta(name, "web"), Spec: appsv1.ReplicaSetSpec{Replicas: new(int32), Selector: f.selector("web"), Template: f.template("web", name)}}
		set.Annotations = map[string]string{"deployment.kubernetes.io/revision": revision, "deployment.kubernetes.io/revision-history": strings.Repeat("1,", 100000)}
		made[*appsv1.ReplicaSet](f, "a replica set")(apps.ReplicaSets(f.namespace).Create(ctx, set, metav1.CreateOptions{}))
	}
	made[*appsv1.Deployment](f, "a deployment")(apps.Deployments(f.namespace).Create(ctx, &appsv1.Deployment{ObjectMeta: f.meta("web", "web"), Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](huge), Selector: f.selector("web"), Template: f.template("web", "now"), MinReadySeconds: huge - 2, ProgressDeadlineSeconds: ptr.To[int32](huge - 1),
		Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{
			MaxSurge: ptr.To(intstr.FromString("9223372036854775807%")), MaxUnavailable: ptr.To(intstr.FromString("0%")),
		}},
	}}, metav1.CreateOptions{}))
	spec := batchv1.JobSpec{
		Parallelism: ptr.To[int32](huge), Completions: ptr.To[int32](huge), BackoffLimit: ptr.To[int32](huge), ActiveDeadlineSeconds: ptr.To[int64](math.MaxInt64),
		TTLSecondsAfterFinished: ptr.To[int32](huge), Template: f.template("job", "i"),
	}
	spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	made[*batchv1.Job](f, "a job")(f.Client.BatchV1().Jobs(f.namespace).Create(ctx, &batchv1.Job{ObjectMeta: f.meta("job", "job"), Spec: spec}, metav1.CreateOptions{}))
	made[*batchv1.CronJob](f, "a cron job")(f.Client.BatchV1().CronJobs(f.namespace).Create(ctx, &batchv1.CronJob{ObjectMeta: f.meta(strings.Repeat("c", 52), "cron"), Spec: batchv1.CronJobSpec{
		Schedule: "@every 1s", StartingDeadlineSeconds: ptr.To[int64](math.MaxInt64), ConcurrencyPolicy: batchv1.ReplaceConcurrent,
		SuccessfulJobsHistoryLimit: ptr.To[int32](huge), FailedJobsHistoryLimit: new(int32), JobTemplate: batchv1.JobTemplateSpec{Spec: spec},
	}}, metav1.CreateOptions{}))
}

func (f foe) others() {
	f.Helper()
	ctx, core := f.Context(), f.Client.CoreV1()
	for name, spec := range map[string]policyv1.PodDisruptionBudgetSpec{
		"most": {MaxUnavailable: ptr.To(intstr.FromInt32(huge))}, "least": {MinAvailable: ptr.To(intstr.FromInt32(huge))}, "all": {MinAvailable: ptr.To(intstr.FromString("100%"))},
	} {
		spec.Selector = &metav1.LabelSelector{}
		made[*policyv1.PodDisruptionBudget](f, "a budget")(f.Client.PolicyV1().PodDisruptionBudgets(f.namespace).Create(ctx,
			&policyv1.PodDisruptionBudget{ObjectMeta: f.meta(name, "web"), Spec: spec}, metav1.CreateOptions{}))
	}
	made[*autoscalingv2.HorizontalPodAutoscaler](f, "an autoscaler")(f.Client.AutoscalingV2().HorizontalPodAutoscalers(f.namespace).Create(ctx,
		&autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: f.meta("web", "web"), Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			MinReplicas: ptr.To[int32](huge), MaxReplicas: huge, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: ptr.To(resource.MustParse("9E"))},
			}}},
		}}, metav1.CreateOptions{}))
	endpoints := &corev1.Endpoints{ObjectMeta: f.meta("many", "many")}
	endpoints.Annotations = nil // they are in all slices
	for i := range 50 {
		endpoints.Subsets = append(endpoints.Subsets, corev1.EndpointSubset{Addresses: []corev1.EndpointAddress{{IP: "192.0.2.1"}}, Ports: []corev1.EndpointPort{{Port: int32(1 + i)}}})
	}
	made[*corev1.Endpoints](f, "endpoints")(core.Endpoints(f.namespace).Create(ctx, endpoints, metav1.CreateOptions{}))
	made[*corev1.Service](f, "a service")(core.Services(f.namespace).Create(ctx, &corev1.Service{ObjectMeta: f.meta("many", "many"), Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 65535}},
	}}, metav1.CreateOptions{}))
}

// objects own each other, or name owners by the hundred that nobody has ever made, or are held by thousands of finalizers.
func (f foe) objects() {
	f.Helper()
	ctx, all := f.Context(), f.Client.CoreV1().ConfigMaps(f.namespace)
	owner := func(name string, uid types.UID) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: uid, BlockOwnerDeletion: ptr.To(true)}
	}
	uids := map[string]types.UID{}
	next := map[string]string{"a": "b", "b": "a", "self": "self"}
	for name := range next {
		uids[name] = made[*corev1.ConfigMap](f, "a config map")(all.Create(ctx, &corev1.ConfigMap{ObjectMeta: f.meta(name, "")}, metav1.CreateOptions{})).UID
	}
	for name, of := range next {
		m := made[*corev1.ConfigMap](f, "a config map")(all.Get(ctx, name, metav1.GetOptions{}))
		m.OwnerReferences = []metav1.OwnerReference{owner(of, uids[of])}
		made[*corev1.ConfigMap](f, "owners in a circle")(all.Update(ctx, m, metav1.UpdateOptions{}))
	}
	for name := range next {
		if err := all.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}); err != nil {
			f.Fatal(err)
		}
	}
	lost := &corev1.ConfigMap{ObjectMeta: f.meta("lost", "")}
	for i := range 100 {
		lost.OwnerReferences = append(lost.OwnerReferences, owner("nobody", types.UID(fmt.Sprint("uid-", i))))
	}
	made[*corev1.ConfigMap](f, "a config map of hundreds of owners")(all.Create(ctx, lost, metav1.CreateOptions{}))
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held"}}
	for i := range 1000 {
		held.Finalizers = append(held.Finalizers, fmt.Sprint(strings.Repeat("f", 50), ".", strings.Repeat("e", 60), ".", strings.Repeat("d", 60), ".example.com/", i))
	}
	made[*corev1.ConfigMap](f, "a config map with thousands of finalizers")(all.Create(ctx, held, metav1.CreateOptions{}))
}

// TestHostileObjects: whatever somebody makes in a namespace, the work of others is done, and it goes with its namespace.
func TestHostileObjects(t *testing.T) {
	a := apitest.Start(t)
	namespaces := a.Client.CoreV1().Namespaces()
	for _, name := range []string{"foe", "friend"} {
		if _, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	a.Control("*")
	a.Agent(func(*corev1.Pod) bool { return true })
	a.AwaitAccount("foe")
	a.AwaitAccount("friend")
	f := foe{a, "foe"}
	f.workloads()
	f.others()
	f.objects()
	configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
	for _, name := range []string{"a", "b", "self", "lost"} {
		a.AwaitGone(configMaps, "foe", name)
	}

	app := map[string]string{"app": "app"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	deployments := a.Client.AppsV1().Deployments("friend")
	if _, err := deployments.Create(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "app"}, Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: app}, Template: template,
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var last appsv1.DeploymentStatus
	a.AwaitChange(func(ctx context.Context) bool {
		d, err := deployments.Get(ctx, "app", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		last = d.Status
		return last.AvailableReplicas == 2
	}, func() string { return fmt.Sprintf("the deployment of somebody else has no two pods: %+v", last) }, appsv1.SchemeGroupVersion.WithResource("deployments"), "friend")

	web, err := a.Client.AppsV1().Deployments("foe").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || web.Status.ObservedGeneration == 0 {
		t.Errorf("the deployment of the foe was not looked at: %+v, %v", web, err)
	}
	if err := namespaces.Delete(t.Context(), "foe", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	all := corev1.SchemeGroupVersion.WithResource("namespaces")
	var conditions []corev1.NamespaceCondition
	a.AwaitChange(func(ctx context.Context) bool {
		ns, err := namespaces.Get(ctx, "foe", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		conditions = ns.Status.Conditions
		for _, c := range conditions {
			if c.Type == corev1.NamespaceFinalizersRemaining && c.Status == corev1.ConditionTrue {
				return true
			}
		}
		return false
	}, func() string { return fmt.Sprintf("the namespace does not say what holds it: %+v", conditions) }, all, "")
	if _, err := a.Client.CoreV1().ConfigMaps("foe").Patch(t.Context(), "held", types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	a.AwaitGone(all, "", "foe")
}
