package autoscaler

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// cpu is a metric of the processors' utilization.
func cpu(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
	}}
}

func perPod(of string) autoscalingv2.MetricTarget {
	q := resource.MustParse(of)
	return autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &q}
}

func whole(of string) autoscalingv2.MetricTarget {
	q := resource.MustParse(of)
	return autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: &q}
}

// look is one at an autoscaler of 2 to 10 pods, with as many pods as its target wants.
func look(current int32, metrics []autoscalingv2.MetricSpec, seen ...Observation) Look {
	two := int32(2)
	return Look{
		Autoscaler: &autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "n", Generation: 4},
			Spec:       autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: &two, MaxReplicas: 10, Metrics: metrics},
			Status: autoscalingv2.HorizontalPodAutoscalerStatus{DesiredReplicas: 77, Conditions: []autoscalingv2.HorizontalPodAutoscalerCondition{
				{Type: autoscalingv2.AbleToScale, Status: corev1.ConditionTrue, LastTransitionTime: ago(time.Hour)},
			}},
		},
		Scale: &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: current}, Status: autoscalingv1.ScaleStatus{Replicas: current, Selector: "app=a"}},
		Pods:  these(int(current)), Observed: seen, Now: now,
	}
}

// tell is a plan in words.
func tell(p Plan) string {
	st := p.Told.Status
	var words []string
	if p.Scale != nil {
		words = append(words, fmt.Sprintf("%d->%d: %s", p.Scale.From, p.Scale.To, p.Scale.Why))
	}
	words = append(words, fmt.Sprintf("%d wants %d", st.CurrentReplicas, st.DesiredReplicas))
	for _, c := range st.Conditions {
		sign := map[corev1.ConditionStatus]string{corev1.ConditionTrue: "+", corev1.ConditionFalse: "-"}[c.Status]
		words = append(words, sign+string(c.Type)+" "+c.Reason)
	}
	for _, e := range p.Events {
		words = append(words, e.Type+" "+e.Reason+": "+e.Message)
	}
	return strings.Join(words, "\n")
}

func TestDecide(t *testing.T) {
	ill := Observation{Err: errors.New("unable to get metrics for resource cpu: no metrics returned from resource metrics API")}
	for _, c := range []struct {
		name string
		look Look
		want []string
	}{
		{"more", look(3, []autoscalingv2.MetricSpec{cpu(50)}, Observation{Samples: uses(1000, 1000, 1000)}), []string{
			"3->6: cpu resource utilization (percentage of request) above target", "3 wants 77", "+AbleToScale ReadyForNewScale", "+ScalingActive ValidMetricFound", "-ScalingLimited DesiredWithinRange",
		}},
		{"enough", look(3, []autoscalingv2.MetricSpec{cpu(50)}, Observation{Samples: uses(500, 500, 500)}), []string{
			"3 wants 3", "+AbleToScale ReadyForNewScale", "+ScalingActive ValidMetricFound", "-ScalingLimited DesiredWithinRange",
		}},
		{"who begins anew does not shrink", look(6, []autoscalingv2.MetricSpec{cpu(50)}, Observation{Samples: uses(100, 100, 100, 100, 100, 100)}), []string{
			"6 wants 6", "+AbleToScale ScaleDownStabilized", "+ScalingActive ValidMetricFound", "-ScalingLimited DesiredWithinRange",
		}},
		{"fewer", func() Look {
			l := look(6, []autoscalingv2.MetricSpec{cpu(50)}, Observation{Samples: uses(100, 100, 100, 100, 100, 100)})
			l.History = history(at{400: 6, 200: 3}, nil, nil)
			return l
		}(), []string{
			"6->3: All metrics below target", "6 wants 77", "+AbleToScale ScaleDownStabilized", "+ScalingActive ValidMetricFound", "-ScalingLimited DesiredWithinRange",
		}},
		{"none, and so it stays", look(0, []autoscalingv2.MetricSpec{cpu(50)}), []string{"0 wants 0", "+AbleToScale SucceededGetScale", "-ScalingActive ScalingDisabled"}},
		{"too many", look(11, []autoscalingv2.MetricSpec{cpu(50)}), []string{"11->10: Current number of replicas above Spec.MaxReplicas", "11 wants 77", "+AbleToScale SucceededGetScale"}},
		{"too few", look(1, []autoscalingv2.MetricSpec{cpu(50)}), []string{"1->2: Current number of replicas below Spec.MinReplicas", "1 wants 77", "+AbleToScale SucceededGetScale"}},

		{"the metric that asks for most counts", look(3, []autoscalingv2.MetricSpec{
			cpu(50), {Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "qps"}, Target: perPod("10")}},
		}, Observation{Samples: uses(600, 600, 600)}, Observation{Samples: uses(15000, 15000, 15000)}), []string{
			"3->5: pods metric qps above target", "3 wants 77", "+AbleToScale ReadyForNewScale", "+ScalingActive ValidMetricFound", "-ScalingLimited DesiredWithinRange",
		}},
		{"no metric", look(3, []autoscalingv2.MetricSpec{cpu(50)}, ill), []string{
			"3 wants 77", "+AbleToScale SucceededGetScale", "-ScalingActive FailedGetResourceMetric",
			"Warning FailedGetResourceMetric: failed to get cpu utilization: unable to get metrics for resource cpu: no metrics returned from resource metrics API",
			"Warning FailedComputeMetricsReplicas: invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: " +
				"failed to get cpu utilization: unable to get metrics for resource cpu: no metrics returned from resource metrics API",
		}},
		{"one of two fails, and the other one needs more", look(3, []autoscalingv2.MetricSpec{
			{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "q"}, Target: perPod("10")}}, cpu(50),
		}, Observation{Err: errors.New("none")}, Observation{Samples: uses(1000, 1000, 1000)}), []string{
			"3->6: cpu resource utilization (percentage of request) above target", "3 wants 77", "+AbleToScale ReadyForNewScale", "+ScalingActive ValidMetricFound",
			"-ScalingLimited DesiredWithinRange", "Warning FailedGetExternalMetric: none",
		}},
		{"one of two fails, and the other one needs fewer", look(3, []autoscalingv2.MetricSpec{
			{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "q"}, Target: whole("10")}}, cpu(50),
		}, Observation{Err: errors.New("none")}, Observation{Samples: uses(100, 100, 100)}), []string{
			"3 wants 77", "+AbleToScale SucceededGetScale", "-ScalingActive FailedGetObjectMetric", "Warning FailedGetObjectMetric: none",
			"Warning FailedComputeMetricsReplicas: invalid metrics (1 invalid out of 2), first error is: failed to get object metric value: none",
		}},
		{"no selector", func() Look {
			l := look(3, []autoscalingv2.MetricSpec{cpu(50)})
			l.Scale.Status.Selector = ""
			return l
		}(), []string{
			"3 wants 77", "+AbleToScale SucceededGetScale", "-ScalingActive InvalidSelector", "Warning SelectorRequired: selector is required",
			"Warning FailedComputeMetricsReplicas: selector is required",
		}},
		{"two autoscalers", func() Look {
			l := look(3, []autoscalingv2.MetricSpec{cpu(50)})
			l.Rivals = []string{"n/a", "n/b"}
			return l
		}(), []string{
			"3 wants 77", "+AbleToScale SucceededGetScale", "-ScalingActive AmbiguousSelector",
			"Warning AmbiguousSelector: pods by selector app=a are controlled by multiple HPAs: [n/a n/b]",
			"Warning FailedComputeMetricsReplicas: pods by selector app=a are controlled by multiple HPAs: [n/a n/b]",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := c.look.Autoscaler.DeepCopy()
			p := Decide(c.look)
			if got, want := tell(p), strings.Join(c.want, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if !equality.Semantic.DeepEqual(before, c.look.Autoscaler) {
				t.Error("the cache's autoscaler has changed")
			}
			if st := p.Told.Status; *st.ObservedGeneration != 4 || !st.Conditions[0].LastTransitionTime.Equal(&before.Status.Conditions[0].LastTransitionTime) {
				t.Errorf("%+v", st)
			}
			if len(p.History.recommendations) == 0 {
				t.Error("what there is is no recommendation")
			}
		})
	}
}

// TestScaled: what is said when it was done, and when it was not.
func TestScaled(t *testing.T) {
	p := Decide(look(3, []autoscalingv2.MetricSpec{cpu(50)}, Observation{Samples: uses(1000, 1000, 1000)}))
	later := now.Add(time.Second)
	if failed := Scaled(Plan{Told: p.Told.DeepCopy(), Scale: p.Scale, History: p.History}, errors.New("forbidden"), later); len(failed.History.ups) != 0 || failed.Told.Status.LastScaleTime != nil ||
		failed.Told.Status.DesiredReplicas != 77 || !strings.Contains(tell(failed), "-AbleToScale FailedUpdateScale") ||
		!strings.Contains(tell(failed), "Warning FailedRescale: New size: 6; reason: cpu resource utilization (percentage of request) above target; error: forbidden") {
		t.Errorf("failed: %s", tell(failed))
	}
	done := Scaled(p, nil, later)
	if len(done.History.ups) != 1 || !done.Told.Status.LastScaleTime.Time.Equal(later) || done.Told.Status.DesiredReplicas != 6 || !strings.Contains(tell(done), "+AbleToScale SucceededRescale") ||
		!strings.Contains(tell(done), "Normal SuccessfulRescale: New size: 6; reason: cpu resource utilization (percentage of request) above target") {
		t.Errorf("done: %s", tell(done))
	}
}

func TestUnscaled(t *testing.T) {
	a := look(3, nil).Autoscaler
	told, event := Unscaled(a, errors.New("it has none"), now)
	if got := told.Status.Conditions[0]; got.Status != corev1.ConditionFalse || got.Reason != "FailedGetScale" ||
		got.Message != "the HPA controller was unable to get the target's current scale: it has none" || !got.LastTransitionTime.Time.Equal(now) || event != warning("FailedGetScale", "it has none") {
		t.Errorf("%+v %+v", got, event)
	}
}

// TestPropose: what each kind of metric asks for, what it is called, and what the status says of it.
func TestPropose(t *testing.T) {
	identifier := autoscalingv2.MetricIdentifier{Name: "m", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"x": "y"}}}
	service := autoscalingv2.CrossVersionObjectReference{Kind: "Service", Name: "s"}
	resourceOf := func(name corev1.ResourceName, target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: name, Target: target}}
	}
	container := autoscalingv2.MetricSpec{Type: autoscalingv2.ContainerResourceMetricSourceType, ContainerResource: &autoscalingv2.ContainerResourceMetricSource{
		Name: corev1.ResourceCPU, Container: "c", Target: cpu(50).Resource.Target,
	}}
	other := container.DeepCopy()
	other.ContainerResource.Container = "d"
	object := func(target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{DescribedObject: service, Metric: identifier, Target: target}}
	}
	external := func(target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{Metric: identifier, Target: target}}
	}
	name := func(s autoscalingv2.MetricStatus) autoscalingv2.MetricValueStatus {
		switch {
		case s.Resource != nil:
			return s.Resource.Current
		case s.ContainerResource != nil:
			return s.ContainerResource.Current
		case s.Pods != nil:
			return s.Pods.Current
		case s.Object != nil:
			return s.Object.Current
		}
		return s.External.Current
	}
	for _, c := range []struct {
		spec autoscalingv2.MetricSpec
		seen Observation
		want string
	}{
		{cpu(50), Observation{Samples: uses(1000, 500)}, "3 by cpu resource utilization (percentage of request): 75% 750m"},
		{container, Observation{Samples: uses(1000, 500)}, "3 by cpu container resource utilization (percentage of request): 75% 750m"},
		{*other, Observation{Samples: uses(1000, 500)}, "FailedGetContainerResourceMetric, failed to get d container metric value: failed to get cpu utilization: container d not found in Pod p0"},
		{resourceOf(corev1.ResourceCPU, perPod("500m")), Observation{Samples: uses(1000, 1000)}, "4 by cpu resource: 1"},
		{resourceOf(corev1.ResourceMemory, perPod("1Mi")), Observation{Samples: uses(2<<20*1000, 4<<20*1000)}, "6 by memory resource: 3Mi"},
		{resourceOf(corev1.ResourceMemory, perPod("1Mi")), Observation{Err: errors.New("none")}, "FailedGetResourceMetric, failed to get memory resource metric value: failed to get memory usage: none"},
		{resourceOf(corev1.ResourceCPU, autoscalingv2.MetricTarget{}), Observation{}, "FailedGetResourceMetric, failed to get cpu resource metric value: " +
			"invalid resource metric source: neither an average utilization target nor an average value (usage) target was set"},
		{object(whole("100")), Observation{Values: []int64{200000}}, "4 by Service metric m: 200"},
		{object(perPod("100")), Observation{Values: []int64{300000}}, "3 by Service metric m: 150"},
		{object(autoscalingv2.MetricTarget{}), Observation{}, "FailedGetObjectMetric, failed to get object metric value: invalid metric source: neither a value target nor an average value target was set"},
		{external(whole("100")), Observation{Values: []int64{100000, 200000}}, "6 by external metric m(&LabelSelector{MatchLabels:map[string]string{x: y,},MatchExpressions:[]LabelSelectorRequirement{},}): 300"},
		{external(perPod("100")), Observation{Values: []int64{100000, 350500}}, "5 by external metric m(&LabelSelector{MatchLabels:map[string]string{x: y,},MatchExpressions:[]LabelSelectorRequirement{},}): 225250m"},
		{external(perPod("100")), Observation{Err: errors.New("none")}, "FailedGetExternalMetric, failed to get m external metric value: none"},
		{autoscalingv2.MetricSpec{Type: "New"}, Observation{}, `InvalidMetricSourceType, failed to get a metric value: unknown metric source type "New"`},
	} {
		l := look(2, nil)
		p, err := l.propose(&c.spec, c.seen)
		var f failure
		var got string
		if errors.As(err, &f) {
			got = fmt.Sprintf("%s, %s: %v", f.reason, f.what, f)
		} else {
			said := name(p.status)
			got = fmt.Sprintf("%d by %s:", p.replicas, p.metric)
			if said.AverageUtilization != nil {
				got += fmt.Sprintf(" %d%%", *said.AverageUtilization)
			}
			for _, q := range []*resource.Quantity{said.AverageValue, said.Value} {
				if q != nil {
					got += " " + q.String()
				}
			}
			if p.status.Type != c.spec.Type {
				got += " of another type"
			}
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.spec.Type, got, c.want)
		}
	}
}

func TestTolerances(t *testing.T) {
	half, none := resource.MustParse("0.5"), resource.MustParse("0")
	for _, c := range []struct {
		behavior *autoscalingv2.HorizontalPodAutoscalerBehavior
		want     tolerance
	}{
		{nil, tolerance{0.1, 0.1}},
		{&autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: &autoscalingv2.HPAScalingRules{}}, tolerance{0.1, 0.1}},
		{&autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: &autoscalingv2.HPAScalingRules{Tolerance: &none}, ScaleDown: &autoscalingv2.HPAScalingRules{Tolerance: &half}}, tolerance{0.5, 0}},
	} {
		if got := tolerances(c.behavior); got != c.want {
			t.Errorf("got %+v, want %+v", got, c.want)
		}
	}
}
