// Package horizontalpodautoscaler serves the resource horizontalpodautoscalers of autoscaling/v2, and of autoscaling/v1, and its subresource status. Objects
// are v2's in memory and in the store. What v1 has no fields for is in annotations there, so that a client of v1 that writes back what it has read loses
// nothing.
package horizontalpodautoscaler

import (
	"reflect"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/registry/workload"
	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/honours"
)

type autoscaler = autoscalingv2.HorizontalPodAutoscaler

// Resource is the resource horizontalpodautoscalers.
func Resource() resource.Of[*autoscaler, *autoscalingv2.HorizontalPodAutoscalerList] {
	return resource.Of[*autoscaler, *autoscalingv2.HorizontalPodAutoscalerList]{
		Group:      autoscalingv2.GroupName,
		Version:    autoscalingv2.SchemeGroupVersion.Version,
		Views:      []schema.GroupVersion{autoscalingv1.SchemeGroupVersion},
		Plural:     "horizontalpodautoscalers",
		Short:      []string{"hpa"},
		Categories: []string{"all"},
		Namespaced: true,
		ReadBy:     resource.Viewer,
		WrittenBy:  resource.Editor,
		Honours:    honoured(),
		Default:    setDefaults,
		Scheme:     addToScheme,
		Create:     func(a *autoscaler) field.ErrorList { return validate(a, nil) },
		Update:     validate,
		Generation: true,
		Status:     &resource.Status[*autoscaler]{Update: validateStatus},
		Columns:    columns(),
	}
}

func honoured() honours.Table {
	return honours.Table{
		reflect.TypeFor[autoscaler]():                                    honours.All("Spec").And(honours.Left, "Status"),
		reflect.TypeFor[autoscalingv2.HorizontalPodAutoscalerSpec]():     honours.All("ScaleTargetRef", "MinReplicas", "MaxReplicas", "Metrics", "Behavior"),
		reflect.TypeFor[autoscalingv2.CrossVersionObjectReference]():     honours.All("Kind", "Name", "APIVersion"),
		reflect.TypeFor[autoscalingv2.HorizontalPodAutoscalerBehavior](): honours.All("ScaleUp", "ScaleDown"),
		reflect.TypeFor[autoscalingv2.HPAScalingRules]():                 honours.All("StabilizationWindowSeconds", "SelectPolicy", "Policies", "Tolerance"),
		reflect.TypeFor[autoscalingv2.HPAScalingPolicy]():                honours.All("Type", "Value", "PeriodSeconds"),
		reflect.TypeFor[autoscalingv2.MetricSpec]():                      honours.All("Type", "Object", "Pods", "Resource", "ContainerResource", "External"),
		reflect.TypeFor[autoscalingv2.ObjectMetricSource]():              honours.All("DescribedObject", "Target", "Metric"),
		reflect.TypeFor[autoscalingv2.PodsMetricSource]():                honours.All("Metric", "Target"),
		reflect.TypeFor[autoscalingv2.ResourceMetricSource]():            honours.All("Name", "Target"),
		reflect.TypeFor[autoscalingv2.ContainerResourceMetricSource]():   honours.All("Name", "Target", "Container"),
		reflect.TypeFor[autoscalingv2.ExternalMetricSource]():            honours.All("Metric", "Target"),
		reflect.TypeFor[autoscalingv2.MetricIdentifier]():                honours.All("Name", "Selector"),
		reflect.TypeFor[autoscalingv2.MetricTarget]():                    honours.All("Type", "Value", "AverageValue", "AverageUtilization"),
	}
}

// addToScheme adds what is particular to v1: its defaults, and the conversion.
func addToScheme(s *runtime.Scheme) error {
	def := func(a *autoscalingv1.HorizontalPodAutoscaler) {
		workload.SetDefault(&a.Spec.MinReplicas, defaultMinReplicas)
	}
	s.AddTypeDefaultingFunc(&autoscalingv1.HorizontalPodAutoscaler{}, func(obj any) { def(obj.(*autoscalingv1.HorizontalPodAutoscaler)) })
	s.AddTypeDefaultingFunc(&autoscalingv1.HorizontalPodAutoscalerList{}, func(obj any) {
		list := obj.(*autoscalingv1.HorizontalPodAutoscalerList)
		for i := range list.Items {
			def(&list.Items[i])
		}
	})
	return addConversions(s)
}

func validateStatus(a, _ *autoscaler) field.ErrorList {
	return workload.NotNegative(field.NewPath("status"), workload.Of("currentReplicas", a.Status.CurrentReplicas), workload.Of("desiredReplicas", a.Status.DesiredReplicas))
}
