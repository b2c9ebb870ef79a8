package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/controllers/autoscaler"
	"monopod.dev/monopod/internal/controllers/catalog"
	"monopod.dev/monopod/internal/controllers/scales"
	"monopod.dev/monopod/test/apitest"
)

// autoscalers is an API server with controllers, and a namespace of its own.
type autoscalers struct {
	*apitest.API
	namespace string
}

func newAutoscalers(t *testing.T) *autoscalers {
	t.Helper()
	w := &autoscalers{API: apitest.StartIn(t, "apps"), namespace: "apps"}
	w.Agent(func(*corev1.Pod) bool { return true })
	return w
}

func appTemplate(app string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceMemory: resource.MustParse("100Mi"),
		}}}}},
	}
}

func (w *autoscalers) deployment(name string, replicas int32) {
	w.Helper()
	if _, err := w.Client.AppsV1().Deployments(w.namespace).Create(w.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: appTemplate(name)},
	}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// autoscaler makes one of up to so many pods, which are to use half of the memory that they request, unless change says otherwise.
func (w *autoscalers) autoscaler(name, apiVersion, kind, target string, most int32, change ...func(*autoscalingv2.HorizontalPodAutoscalerSpec)) {
	w.Helper()
	half := int32(50)
	a := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: apiVersion, Kind: kind, Name: target}, MaxReplicas: most,
		Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceMemory, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &half},
		}}},
	}}
	for _, c := range change {
		c(&a.Spec)
	}
	if _, err := w.Client.AutoscalingV2().HorizontalPodAutoscalers(w.namespace).Create(w.Context(), a, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// await waits until an autoscaler is as wanted.
func (w *autoscalers) await(name, what string, wanted func(*autoscalingv2.HorizontalPodAutoscaler) bool) *autoscalingv2.HorizontalPodAutoscaler {
	w.Helper()
	return apitest.Become(w.API, autoscalingv2.SchemeGroupVersion.WithResource("horizontalpodautoscalers"), w.namespace, w.Client.AutoscalingV2().HorizontalPodAutoscalers(w.namespace), name, what, wanted,
		func(a *autoscalingv2.HorizontalPodAutoscaler) string { return fmt.Sprintf("%+v", a.Status) })
}

// awaitReason waits until an autoscaler's condition has a reason, and returns its message.
func (w *autoscalers) awaitReason(name string, of autoscalingv2.HorizontalPodAutoscalerConditionType, reason string) (message string) {
	w.Helper()
	w.await(name, fmt.Sprintf("%s %s", of, reason), func(a *autoscalingv2.HorizontalPodAutoscaler) bool {
		for _, c := range a.Status.Conditions {
			if c.Type == of && c.Reason == reason {
				message = c.Message
				return true
			}
		}
		return false
	})
	return message
}

// event waits for one of a reason about an autoscaler whose message has these words.
func (w *autoscalers) event(name, reason, words string) {
	w.Helper()
	var last string
	w.AwaitChange(func(ctx context.Context) bool {
		all, err := w.Client.CoreV1().Events(w.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=HorizontalPodAutoscaler,involvedObject.name=" + name})
		if err != nil {
			w.Fatal(err)
		}
		last = ""
		for _, e := range all.Items {
			if e.Reason == reason && strings.Contains(e.Message, words) && e.Source.Component == "horizontal-pod-autoscaler" {
				return true
			}
			last += fmt.Sprintf(" %s: %s;", e.Reason, e.Message)
		}
		return false
	}, func() string { return fmt.Sprintf("%s has no event %s, but%s", name, reason, last) }, corev1.SchemeGroupVersion.WithResource("events"), w.namespace)
}

// gauge is what every pod is said to use, in thousandths; below 0: it is not known.
type gauge struct {
	*autoscalers
	mu    sync.Mutex
	value int64
}

func (g *gauge) set(value int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.value = value
}

// Observe implements autoscaler.Metrics.
func (g *gauge) Observe(ctx context.Context, namespace string, selector labels.Selector, _ *autoscalingv2.MetricSpec) (o autoscaler.Observation) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.value < 0 {
		o.Err = errors.New("nobody knows")
		return o
	}
	pods, err := g.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		o.Err = err
		return o
	}
	o.Samples = map[string]autoscaler.Sample{}
	for i := range pods.Items {
		o.Samples[pods.Items[i].Name] = autoscaler.Sample{Value: g.value, At: time.Now(), Window: time.Second}
	}
	return o
}

// scale runs the controller by a gauge until stop is called, or the test ends.
func (w *autoscalers) scale(g *gauge) (stop func()) {
	w.Helper()
	connection, err := rest.HTTPClientFor(w.Config)
	if err != nil {
		w.Fatal(err)
	}
	told, err := discovery.NewDiscoveryClientForConfigAndClient(w.Config, connection)
	if err != nil {
		w.Fatal(err)
	}
	all, err := scales.New(w.Config, connection, told)
	if err != nil {
		w.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(w.Client, 0)
	c, err := autoscaler.New(autoscaler.Config{
		Client: w.Client, Autoscalers: factory.Autoscaling().V2().HorizontalPodAutoscalers(), Pods: factory.Core().V1().Pods(),
		Scales: all, Metrics: g, Events: &record.FakeRecorder{}, Period: 50 * time.Millisecond,
	})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	factory.StartWithContext(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
		factory.Shutdown()
	})
	w.Cleanup(stop)
	return stop
}

func (w *autoscalers) replicas(name string) int32 {
	w.Helper()
	d, err := w.Client.AppsV1().Deployments(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return *d.Spec.Replicas
}

// TestAutoscaler: a deployment grows and shrinks by what its pods use, also by a controller that begins anew.
func TestAutoscaler(t *testing.T) {
	const mi = 1 << 20 * 1000
	w := newAutoscalers(t)
	w.Control(catalog.Deployment, catalog.ReplicaSet, catalog.PodGC)
	g := &gauge{autoscalers: w, value: -1}
	stop := w.scale(g)
	w.autoscaler("web", "apps/v1", "Deployment", "web", 4, func(s *autoscalingv2.HorizontalPodAutoscalerSpec) {
		s.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: new(int32)}}
	})
	if message := w.awaitReason("web", autoscalingv2.AbleToScale, "FailedGetScale"); !strings.Contains(message, `deployments.apps "web" not found`) {
		t.Errorf("message %q", message)
	}
	w.deployment("web", 1)
	w.awaitReason("web", autoscalingv2.ScalingActive, "FailedGetResourceMetric")
	g.set(50 * mi)
	a := w.await("web", "as it should be", func(a *autoscalingv2.HorizontalPodAutoscaler) bool {
		m := a.Status.CurrentMetrics
		return len(m) == 1 && m[0].Resource != nil && *m[0].Resource.Current.AverageUtilization == 50 && m[0].Resource.Current.AverageValue.String() == "50Mi"
	})
	if a.Status.CurrentReplicas != 1 || a.Status.DesiredReplicas != 1 || a.Status.LastScaleTime != nil {
		t.Errorf("%+v", a.Status)
	}
	g.set(100 * mi)
	w.await("web", "at its end", func(a *autoscalingv2.HorizontalPodAutoscaler) bool {
		return a.Status.CurrentReplicas == 4 && a.Status.DesiredReplicas == 4 && a.Status.LastScaleTime != nil
	})
	w.awaitReason("web", autoscalingv2.ScalingLimited, "TooManyReplicas")
	stop()
	g.set(25 * mi)
	w.scale(g)
	w.await("web", "half", func(a *autoscalingv2.HorizontalPodAutoscaler) bool { return a.Status.DesiredReplicas < 4 })
	g.set(0)
	w.await("web", "at its least", func(a *autoscalingv2.HorizontalPodAutoscaler) bool { return a.Status.CurrentReplicas == 1 })
	w.awaitReason("web", autoscalingv2.ScalingLimited, "TooFewReplicas")

	// Who scales to nothing switches it off.
	if _, err := w.Client.AppsV1().Deployments(w.namespace).Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	g.set(100 * mi)
	w.awaitReason("web", autoscalingv2.ScalingActive, "ScalingDisabled")
	if n := w.replicas("web"); n != 0 {
		t.Errorf("it is scaled to %d", n)
	}
}

// TestAutoscalerTargets: whatever has a scale is scaled, with the rights of the controllers.
func TestAutoscalerTargets(t *testing.T) {
	w := newAutoscalers(t)
	w.Control(catalog.Autoscaler)
	three := int32(3)
	apps := w.Client.AppsV1()
	_, setErr := apps.ReplicaSets(w.namespace).Create(t.Context(), &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "set"}, Spec: appsv1.ReplicaSetSpec{
		Replicas: &three, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "set"}}, Template: appTemplate("set"),
	}}, metav1.CreateOptions{})
	_, statefulErr := apps.StatefulSets(w.namespace).Create(t.Context(), &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "stateful"}, Spec: appsv1.StatefulSetSpec{
		Replicas: &three, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "stateful"}}, Template: appTemplate("stateful"),
	}}, metav1.CreateOptions{})
	of := appTemplate("rc")
	_, rcErr := w.Client.CoreV1().ReplicationControllers(w.namespace).Create(t.Context(), &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Name: "rc"},
		Spec: corev1.ReplicationControllerSpec{Replicas: &three, Template: &of}}, metav1.CreateOptions{})
	if err := errors.Join(setErr, statefulErr, rcErr); err != nil {
		t.Fatal(err)
	}
	for name, ref := range map[string][2]string{"set": {"apps/v1", "ReplicaSet"}, "stateful": {"apps/v1", "StatefulSet"}, "rc": {"v1", "ReplicationController"}} {
		w.autoscaler(name, ref[0], ref[1], name, 2)
		a := w.await(name, "at its most", func(a *autoscalingv2.HorizontalPodAutoscaler) bool { return a.Status.DesiredReplicas == 2 })
		if a.Status.CurrentReplicas != 3 {
			t.Errorf("%s: %+v", name, a.Status)
		}
		w.event(name, "SuccessfulRescale", "New size: 2; reason: Current number of replicas above Spec.MaxReplicas")
	}
	set, err := apps.StatefulSets(w.namespace).Get(t.Context(), "stateful", metav1.GetOptions{})
	if err != nil || *set.Spec.Replicas != 2 {
		t.Errorf("the set wants %d: %v", *set.Spec.Replicas, err)
	}

	w.autoscaler("job", "batch/v1", "Job", "x", 2)
	if message := w.awaitReason("job", autoscalingv2.AbleToScale, "FailedGetScale"); !strings.HasSuffix(message, "jobs.batch does not implement the scale subresource") {
		t.Errorf("message %q", message)
	}
	w.event("job", "FailedGetScale", "jobs.batch")
	w.autoscaler("nothing", "example.org/v1", "Nothing", "x", 2)
	if message := w.awaitReason("nothing", autoscalingv2.AbleToScale, "FailedGetScale"); !strings.HasSuffix(message, `no matches for kind "Nothing" in group "example.org"`) {
		t.Errorf("message %q", message)
	}
}

// TestAutoscalerMetricsMissing: what an autoscaler says where the API server has no such metrics, or knows nothing. None of it is for a lack of rights.
func TestAutoscalerMetricsMissing(t *testing.T) {
	w := newAutoscalers(t)
	w.Control(catalog.Deployment, catalog.ReplicaSet)
	w.Control(catalog.Autoscaler)
	w.deployment("web", 1)
	ten := resource.MustParse("10")
	target := autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &ten}
	metric := autoscalingv2.MetricIdentifier{Name: "qps"}
	w.awaitPods("web")
	for _, c := range []struct {
		spec           autoscalingv2.MetricSpec
		reason, suffix string
	}{
		{autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceMemory, Target: target}},
			"FailedGetResourceMetric", "unable to get metrics for resource memory: no metrics returned from resource metrics API"},
		{autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{Metric: metric, Target: target}},
			"FailedGetPodsMetric", "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered"},
		{autoscalingv2.MetricSpec{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{
			Metric: metric, Target: target, DescribedObject: autoscalingv2.CrossVersionObjectReference{APIVersion: "v1", Kind: "Service", Name: "s"},
		}}, "FailedGetObjectMetric", "unable to get metric qps on Service apps/s: unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered"},
		{autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{Metric: metric, Target: target}},
			"FailedGetExternalMetric", "unable to fetch metrics from external metrics API: the server could not find the requested resource (get qps.external.metrics.k8s.io)"},
	} {
		name := strings.ToLower(c.reason)
		w.autoscaler(name, "apps/v1", "Deployment", "web", 3, func(s *autoscalingv2.HorizontalPodAutoscalerSpec) { s.Metrics = []autoscalingv2.MetricSpec{c.spec} })
		if message := w.awaitReason(name, autoscalingv2.ScalingActive, c.reason); !strings.HasSuffix(message, c.suffix) {
			t.Errorf("message %q", message)
		}
		w.event(name, c.reason, c.suffix)
		w.event(name, "FailedComputeMetricsReplicas", "invalid metrics (1 invalid out of 1)")
		if err := w.Client.AutoscalingV2().HorizontalPodAutoscalers(w.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
}

// TestAutoscalerRivals: two autoscalers of the same pods would pull at them for ever.
func TestAutoscalerRivals(t *testing.T) {
	w := newAutoscalers(t)
	w.Control(catalog.Deployment, catalog.ReplicaSet)
	w.deployment("web", 1)
	w.awaitPods("web")
	w.scale(&gauge{autoscalers: w, value: 0})
	w.autoscaler("one", "apps/v1", "Deployment", "web", 3)
	w.awaitReason("one", autoscalingv2.ScalingActive, "ValidMetricFound")
	w.autoscaler("two", "apps/v1", "Deployment", "web", 3)
	for _, name := range []string{"one", "two"} {
		if message := w.awaitReason(name, autoscalingv2.ScalingActive, "AmbiguousSelector"); message != "pods by selector app=web are controlled by multiple HPAs: [apps/one apps/two]" {
			t.Errorf("message %q", message)
		}
	}
	if err := w.Client.AutoscalingV2().HorizontalPodAutoscalers(w.namespace).Delete(t.Context(), "two", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitReason("one", autoscalingv2.ScalingActive, "ValidMetricFound")
}

// awaitPods waits until an application has a pod that runs.
func (w *autoscalers) awaitPods(app string) {
	w.Helper()
	w.AwaitChange(func(ctx context.Context) bool {
		list, err := w.Client.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
		return err == nil && len(list.Items) > 0 && list.Items[0].Status.Phase == corev1.PodRunning
	}, func() string { return "no pod runs" }, corev1.SchemeGroupVersion.WithResource("pods"), w.namespace)
}
