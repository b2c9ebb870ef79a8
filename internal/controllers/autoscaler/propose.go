package autoscaler

import (
	"errors"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// baseTolerance is by which share of a target usage may be off where an autoscaler does not say.
const baseTolerance = 0.1

// Observation is what was found out about a metric. What is set follows from the metric's kind.
type Observation struct {
	// Samples are those of pods, by their names.
	Samples map[string]Sample
	// Values are those of an object, or of an external metric, in thousandths.
	Values []int64
	// Err is why nothing was found out.
	Err error
}

// proposal is how many pods a metric asks for.
type proposal struct {
	replicas int32
	// metric is what the metric is called in events.
	metric string
	status autoscalingv2.MetricStatus
}

// failure is why a metric asks for nothing.
type failure struct {
	error
	// reason is that of the event, what says which metric it is.
	reason, what string
}

// propose is what a metric asks for. An error is a failure.
func (l Look) propose(spec *autoscalingv2.MetricSpec, seen Observation) (proposal, error) {
	p := pool{pods: l.Pods, wanted: l.Scale.Spec.Replicas, running: l.Scale.Status.Replicas, tolerance: tolerances(l.Autoscaler.Spec.Behavior), now: l.Now}
	of := proposal{status: autoscalingv2.MetricStatus{Type: spec.Type}}
	var reason, what string
	var err error
	switch spec.Type {
	case autoscalingv2.ResourceMetricSourceType:
		m := spec.Resource
		reason, what = "FailedGetResourceMetric", fmt.Sprintf("failed to get %s resource metric value", m.Name)
		of.status.Resource = &autoscalingv2.ResourceMetricStatus{Name: m.Name}
		of.metric = called(m.Name, "", m.Target)
		of.replicas, err = p.resource(seen, m.Name, "", m.Target, &of.status.Resource.Current)
	case autoscalingv2.ContainerResourceMetricSourceType:
		m := spec.ContainerResource
		reason, what = "FailedGetContainerResourceMetric", fmt.Sprintf("failed to get %s container metric value", m.Container)
		of.status.ContainerResource = &autoscalingv2.ContainerResourceMetricStatus{Name: m.Name, Container: m.Container}
		of.metric = called(m.Name, "container ", m.Target)
		of.replicas, err = p.resource(seen, m.Name, m.Container, m.Target, &of.status.ContainerResource.Current)
	case autoscalingv2.PodsMetricSourceType:
		m := spec.Pods
		reason, what = "FailedGetPodsMetric", "failed to get pods metric value"
		of.status.Pods = &autoscalingv2.PodsMetricStatus{Metric: m.Metric}
		of.metric = "pods metric " + m.Metric.Name
		of.replicas, err = p.perPod(seen, m.Target, &of.status.Pods.Current)
	case autoscalingv2.ObjectMetricSourceType:
		m := spec.Object
		reason, what = "FailedGetObjectMetric", "failed to get object metric value"
		of.status.Object = &autoscalingv2.ObjectMetricStatus{Metric: m.Metric, DescribedObject: m.DescribedObject}
		of.metric = fmt.Sprintf("%s metric %s", m.DescribedObject.Kind, m.Metric.Name)
		of.replicas, err = p.value(seen, m.Target, &of.status.Object.Current)
	case autoscalingv2.ExternalMetricSourceType:
		m := spec.External
		reason, what = "FailedGetExternalMetric", fmt.Sprintf("failed to get %s external metric value", m.Metric.Name)
		of.status.External = &autoscalingv2.ExternalMetricStatus{Metric: m.Metric}
		of.metric = fmt.Sprintf("external metric %s(%+v)", m.Metric.Name, m.Metric.Selector)
		of.replicas, err = p.value(seen, m.Target, &of.status.External.Current)
	default:
		reason, what, err = "InvalidMetricSourceType", "failed to get a metric value", fmt.Errorf("unknown metric source type %q", spec.Type)
	}
	if err != nil {
		return proposal{}, failure{err, reason, what}
	}
	return of, nil
}

// called is what a resource is called as a metric. of is "" or "container ".
func called(name corev1.ResourceName, of string, target autoscalingv2.MetricTarget) string {
	if target.AverageValue != nil {
		return fmt.Sprintf("%s resource", name)
	}
	return fmt.Sprintf("%s %sresource utilization (percentage of request)", name, of)
}

func tolerances(behavior *autoscalingv2.HorizontalPodAutoscalerBehavior) tolerance {
	t := tolerance{baseTolerance, baseTolerance}
	if behavior == nil {
		return t
	}
	if down := behavior.ScaleDown; down != nil && down.Tolerance != nil {
		t.down = down.Tolerance.AsApproximateFloat64()
	}
	if up := behavior.ScaleUp; up != nil && up.Tolerance != nil {
		t.up = up.Tolerance.AsApproximateFloat64()
	}
	return t
}

var errNoTarget = errors.New("neither a value target nor an average value target was set")

// resource is how many pods a resource asks for that pods, or a container of theirs, use.
func (p pool) resource(seen Observation, name corev1.ResourceName, container string, target autoscalingv2.MetricTarget, said *autoscalingv2.MetricValueStatus) (int32, error) {
	of := "utilization"
	if target.AverageValue != nil {
		of = "usage"
	} else if target.AverageUtilization == nil {
		return 0, errors.New("invalid resource metric source: neither an average utilization target nor an average value (usage) target was set")
	}
	failed := func(err error) (int32, error) { return 0, fmt.Errorf("failed to get %s %s: %w", name, of, err) }
	if seen.Err != nil {
		return failed(seen.Err)
	}
	var n int32
	var u used
	var err error
	if target.AverageValue != nil {
		n, u, err = p.byAverage(seen.Samples, name, target.AverageValue.MilliValue())
	} else {
		n, u, err = p.byUtilization(seen.Samples, name, container, *target.AverageUtilization)
		said.AverageUtilization = &u.percent
	}
	if err != nil {
		return failed(err)
	}
	said.AverageValue = quantity(u.average, name)
	return n, nil
}

// perPod is how many pods a metric asks for that each pod has.
func (p pool) perPod(seen Observation, target autoscalingv2.MetricTarget, said *autoscalingv2.MetricValueStatus) (int32, error) {
	if target.AverageValue == nil {
		return 0, fmt.Errorf("invalid pods metric source: %w", errNoTarget)
	}
	if seen.Err != nil {
		return 0, seen.Err
	}
	n, u, err := p.byAverage(seen.Samples, "", target.AverageValue.MilliValue())
	said.AverageValue = quantity(u.average, "")
	return n, err
}

// value is how many pods a metric asks for that is one of all of them.
func (p pool) value(seen Observation, target autoscalingv2.MetricTarget, said *autoscalingv2.MetricValueStatus) (n int32, err error) {
	total := sum(seen.Values)
	switch {
	case target.Value == nil && target.AverageValue == nil:
		return 0, fmt.Errorf("invalid metric source: %w", errNoTarget)
	case seen.Err != nil:
		return 0, seen.Err
	case target.AverageValue != nil && (target.Value == nil || target.Type == autoscalingv2.AverageValueMetricType):
		var each int64
		n, each = p.byShare(total, target.AverageValue.MilliValue())
		said.AverageValue = quantity(each, "")
	default:
		n, err = p.byValue(total, target.Value.MilliValue())
		said.Value = quantity(total, "")
	}
	return n, err
}

// quantity is so many thousandths, as they are usually written.
func quantity(milli int64, of corev1.ResourceName) *resource.Quantity {
	format := resource.DecimalSI
	if of == corev1.ResourceMemory {
		format = resource.BinarySI
	}
	return resource.NewMilliQuantity(milli, format)
}
