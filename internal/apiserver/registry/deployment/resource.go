// Package deployment serves the resource deployments of apps/v1, and its subresources status and scale.
package deployment

import (
	"fmt"
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod.dev/monopod/internal/apiserver/registry/workload"
	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
	"monopod.dev/monopod/internal/pods/defaults"
)

// Resource is the resource deployments. Which fields of a pod are honoured, the pods' own table says.
func Resource() resource.Of[*appsv1.Deployment, *appsv1.DeploymentList] {
	return resource.Of[*appsv1.Deployment, *appsv1.DeploymentList]{
		Group:      appsv1.GroupName,
		Plural:     "deployments",
		Short:      []string{"deploy"},
		Categories: []string{"all"},
		Namespaced: true,
		ReadBy:     resource.Viewer,
		WrittenBy:  resource.Editor,
		Honours: apifields.Table{
			reflect.TypeFor[appsv1.Deployment](): apifields.All("Spec").And(apifields.Left, "Status"),
			reflect.TypeFor[appsv1.DeploymentSpec](): apifields.All("Replicas", "Selector", "Strategy", "MinReadySeconds", "RevisionHistoryLimit", "Paused",
				"ProgressDeadlineSeconds").And(apifields.Left, "Template"),
			reflect.TypeFor[appsv1.DeploymentStrategy]():      apifields.All("Type", "RollingUpdate"),
			reflect.TypeFor[appsv1.RollingUpdateDeployment](): apifields.All("MaxUnavailable", "MaxSurge"),
		},
		Default: setDefaults,
		Create:  validate,
		Update:  validateUpdate,
		Warn: func(d *appsv1.Deployment) []string {
			return append(workload.NameWarnings(d.Name), workload.Warnings(&d.Spec.Template)...)
		},
		WarnUpdate: func(d, old *appsv1.Deployment) []string {
			if d.Generation == old.Generation {
				return nil
			}
			return workload.Warnings(&d.Spec.Template)
		},
		Prepare: func(d *appsv1.Deployment) { d.Generation = 1 },
		// Annotations count as the spec does: replica sets get them.
		PrepareUpdate: func(d, old *appsv1.Deployment) {
			d.Generation = old.Generation
			if !apiequality.Semantic.DeepEqual(d.Spec, old.Spec) || !apiequality.Semantic.DeepEqual(d.Annotations, old.Annotations) {
				d.Generation++
			}
		},
		Status: &resource.Status[*appsv1.Deployment]{
			Prepare: func(d, old *appsv1.Deployment) { d.Labels = old.Labels },
			Resets:  []string{"metadata.labels"},
			Update:  validateStatus,
		},
		Columns: columns(),
		Parts: map[string]resource.Part{"scale": workload.Scalable[*appsv1.Deployment]{
			Version:  appsv1.SchemeGroupVersion,
			Replicas: func(d *appsv1.Deployment) **int32 { return &d.Spec.Replicas },
			Pods: func(d *appsv1.Deployment) (int32, labels.Selector, error) {
				selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
				return d.Status.Replicas, selector, err
			},
		}.Part()},
	}
}

// What a deployment has that does not say otherwise.
const (
	defaultShare            = "25%"
	defaultHistory          = 10
	defaultProgressDeadline = 600
)

func setDefaults(d *appsv1.Deployment) {
	spec := &d.Spec
	workload.SetDefault(&spec.Replicas, 1)
	if spec.Strategy.Type == "" {
		spec.Strategy.Type = appsv1.RollingUpdateDeploymentStrategyType
	}
	if spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		if spec.Strategy.RollingUpdate == nil {
			spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{}
		}
		workload.SetDefault(&spec.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString(defaultShare))
		workload.SetDefault(&spec.Strategy.RollingUpdate.MaxSurge, intstr.FromString(defaultShare))
	}
	workload.SetDefault(&spec.RevisionHistoryLimit, defaultHistory)
	workload.SetDefault(&spec.ProgressDeadlineSeconds, defaultProgressDeadline)
	defaults.Template(&spec.Template)
}

func columns() []resource.Column[*appsv1.Deployment] {
	spec, status := appsv1.DeploymentSpec{}.SwaggerDoc(), appsv1.DeploymentStatus{}.SwaggerDoc()
	all := []resource.Column[*appsv1.Deployment]{
		{Name: "Name"},
		{Name: "Ready", Doc: "Number of the pod with ready state", Value: func(d *appsv1.Deployment) any {
			return fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, workload.Wanted(d.Spec.Replicas))
		}},
		// Not integers by their type, as everywhere.
		{Name: "Up-to-date", Doc: status["updatedReplicas"], Value: func(d *appsv1.Deployment) any { return int64(d.Status.UpdatedReplicas) }},
		{Name: "Available", Doc: status["availableReplicas"], Value: func(d *appsv1.Deployment) any { return int64(d.Status.AvailableReplicas) }},
		{Name: "Age"},
	}
	all = append(all, workload.ContainerColumns(true, func(d *appsv1.Deployment) *corev1.PodTemplateSpec { return &d.Spec.Template })...)
	return append(all, resource.Column[*appsv1.Deployment]{Name: "Selector", Wide: true, Doc: spec["selector"], Value: func(d *appsv1.Deployment) any {
		selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
		if err != nil {
			return "<invalid>"
		}
		return selector.String()
	}})
}
