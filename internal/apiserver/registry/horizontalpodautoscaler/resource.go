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
	"monopod.dev/monopod/internal/kit/apifields"
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

func honoured() apifields.Table {
	return apifields.Table{
		reflect.TypeFor[autoscaler]():                                    apifields.All("Spec").And(apifields.Left, "Status"),
		reflect.TypeFor[autoscalingv2.HorizontalPodAutoscalerSpec]():     apifields.All("ScaleTargetRef", "MinReplicas", "MaxReplicas", "Metrics", "Behavior"),
		reflect.TypeFor[autoscalingv2.CrossVersionObjectReference]():     apifields.All("Kind", "Name", "APIVersion"),
		reflect.TypeFor[autoscalingv2.HorizontalPodAutoscalerBehavior](): apifields.All("ScaleUp", "ScaleDown"),
		reflect.TypeFor[autoscalingv2.HPAScalingRules]():                 apifields.All("StabilizationWindowSeconds", "SelectPolicy", "Policies", "Tolerance"),
		reflect.TypeFor[autoscalingv2.HPAScalingPolicy]():                apifields.All("Type", "Value", "PeriodSeconds"),
		reflect.TypeFor[autoscalingv2.MetricSpec]():                      apifields.All("Type", "Object", "Pods", "Resource", "ContainerResource", "External"),
		reflect.TypeFor[autoscalingv2.ObjectMetricSource]():              apifields.All("DescribedObject", "Target", "Metric"),
		reflect.TypeFor[autoscalingv2.PodsMetricSource]():                apifields.All("Metric", "Target"),
		reflect.TypeFor[autoscalingv2.ResourceMetricSource]():            apifields.All("Name", "Target"),
		reflect.TypeFor[autoscalingv2.ContainerResourceMetricSource]():   apifields.All("Name", "Target", "Container"),
		reflect.TypeFor[autoscalingv2.ExternalMetricSource]():            apifields.All("Metric", "Target"),
		reflect.TypeFor[autoscalingv2.MetricIdentifier]():                apifields.All("Name", "Selector"),
		reflect.TypeFor[autoscalingv2.MetricTarget]():                    apifields.All("Type", "Value", "AverageValue", "AverageUtilization"),
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
