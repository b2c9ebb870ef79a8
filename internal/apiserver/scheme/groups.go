package scheme

import (
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// group is an API group in one version.
type group struct {
	schema.GroupVersion
	// add registers its Go types.
	add Hook
	// memory are the kinds of the objects in memory; nil: those that add registers.
	memory []runtime.Object
}

// groups are all that are served; there is no other list of them. After a change of it run `make generate`, which makes their OpenAPI definitions. Where a group has more than one version, the first one is that of its objects in memory.
func groups() []group {
	return []group{
		{corev1.SchemeGroupVersion, corev1.AddToScheme, nil},
		{appsv1.SchemeGroupVersion, appsv1.AddToScheme, nil},
		{authenticationv1.SchemeGroupVersion, authenticationv1.AddToScheme, nil},
		{authorizationv1.SchemeGroupVersion, authorizationv1.AddToScheme, nil},
		{autoscalingv2.SchemeGroupVersion, autoscalingv2.AddToScheme, []runtime.Object{
			&autoscalingv2.HorizontalPodAutoscaler{}, &autoscalingv2.HorizontalPodAutoscalerList{}, &autoscalingv1.Scale{},
		}},
		{autoscalingv1.SchemeGroupVersion, autoscalingv1.AddToScheme, nil},
		{batchv1.SchemeGroupVersion, batchv1.AddToScheme, nil},
		{certificatesv1.SchemeGroupVersion, certificatesv1.AddToScheme, nil},
		{coordinationv1.SchemeGroupVersion, coordinationv1.AddToScheme, nil},
		{discoveryv1.SchemeGroupVersion, discoveryv1.AddToScheme, nil},
		{eventsv1.SchemeGroupVersion, eventsv1.AddToScheme, []runtime.Object{&corev1.Event{}, &corev1.EventList{}}},
		{metricsv1beta1.SchemeGroupVersion, metricsv1beta1.AddToScheme, []runtime.Object{
			&metricsv1beta1.NodeMetrics{}, &metricsv1beta1.NodeMetricsList{}, &metricsv1beta1.PodMetrics{}, &metricsv1beta1.PodMetricsList{},
		}},
		{networkingv1.SchemeGroupVersion, networkingv1.AddToScheme, nil},
		{policyv1.SchemeGroupVersion, policyv1.AddToScheme, nil},
		{nodev1.SchemeGroupVersion, nodev1.AddToScheme, nil},
		{schedulingv1.SchemeGroupVersion, schedulingv1.AddToScheme, nil},
		{rbacv1.SchemeGroupVersion, rbacv1.AddToScheme, nil},
		{storagev1.SchemeGroupVersion, storagev1.AddToScheme, nil},
	}
}
