package horizontalpodautoscaler

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/apiserver/registry/workload"
)

const (
	defaultMinReplicas = int32(1)
	// defaultUtilization is the share of the requested CPU that pods are to use where nothing is said of metrics.
	defaultUtilization = int32(80)
	// defaultPeriod is for how many seconds the default policies of scaling count.
	defaultPeriod = int32(15)
)

// setDefaults sets the defaults of an object of v2. Annotations that carry fields through v1 mean nothing there and go.
func setDefaults(a *autoscaler) {
	a.Annotations = withoutCarried(a.Annotations)
	spec := &a.Spec
	workload.SetDefault(&spec.MinReplicas, defaultMinReplicas)
	if len(spec.Metrics) == 0 {
		spec.Metrics = []autoscalingv2.MetricSpec{utilizationOfCPU(defaultUtilization)}
	}
	if spec.Behavior == nil {
		return
	}
	all := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: defaultPeriod}
	up := rulesOf(&spec.Behavior.ScaleUp, autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: defaultPeriod}, all)
	workload.SetDefault(&up.StabilizationWindowSeconds, 0)
	rulesOf(&spec.Behavior.ScaleDown, all) // how long it waits is for the controller to say
}

// rulesOf are the rules of one direction, made where there are none.
func rulesOf(at **autoscalingv2.HPAScalingRules, policies ...autoscalingv2.HPAScalingPolicy) *autoscalingv2.HPAScalingRules {
	if *at == nil {
		*at = &autoscalingv2.HPAScalingRules{}
	}
	workload.SetDefault(&(*at).SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if (*at).Policies == nil {
		(*at).Policies = policies
	}
	return *at
}

func utilizationOfCPU(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
	}}
}
