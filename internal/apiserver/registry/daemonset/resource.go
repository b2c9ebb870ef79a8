// Package daemonset serves the resource daemonsets of apps/v1, and its subresource status.
package daemonset

import (
	"reflect"
	"strconv"

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

// Resource is the resource daemonsets. Which fields of a pod are honoured, the pods' own table says.
func Resource() resource.Of[*appsv1.DaemonSet, *appsv1.DaemonSetList] {
	return resource.Of[*appsv1.DaemonSet, *appsv1.DaemonSetList]{
		Group:      appsv1.GroupName,
		Plural:     "daemonsets",
		Short:      []string{"ds"},
		Categories: []string{"all"},
		Namespaced: true,
		ReadBy:     resource.Viewer,
		WrittenBy:  resource.Editor,
		Honours: apifields.Table{
			reflect.TypeFor[appsv1.DaemonSet]():               apifields.All("Spec").And(apifields.Left, "Status"),
			reflect.TypeFor[appsv1.DaemonSetSpec]():           apifields.All("Selector", "UpdateStrategy", "MinReadySeconds", "RevisionHistoryLimit").And(apifields.Left, "Template"),
			reflect.TypeFor[appsv1.DaemonSetUpdateStrategy](): apifields.All("Type", "RollingUpdate"),
			reflect.TypeFor[appsv1.RollingUpdateDaemonSet]():  apifields.All("MaxUnavailable", "MaxSurge"),
		},
		Default: setDefaults,
		Prepare: func(d *appsv1.DaemonSet) {
			if n, err := templateGeneration(d); err == nil {
				setTemplateGeneration(d, max(n, 1))
			}
		},
		PrepareUpdate: func(d, old *appsv1.DaemonSet) {
			n, err := templateGeneration(old)
			if err != nil {
				n = 0 // who made it counted nothing
			}
			if templateChanged(d, old) {
				n++
			}
			setTemplateGeneration(d, n)
		},
		Create: validate,
		Update: validateUpdate,
		Warn:   func(d *appsv1.DaemonSet) []string { return workload.Warnings(&d.Spec.Template) },
		WarnUpdate: func(d, old *appsv1.DaemonSet) []string {
			if !templateChanged(d, old) {
				return nil
			}
			return workload.Warnings(&d.Spec.Template)
		},
		Generation: true,
		Status:     &resource.Status[*appsv1.DaemonSet]{Update: validateStatus},
		Columns:    columns(),
	}
}

// defaultHistory is how many revisions are kept of a set that does not say.
const defaultHistory = 10

func setDefaults(d *appsv1.DaemonSet) {
	spec := &d.Spec
	if spec.UpdateStrategy.Type == "" {
		spec.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
	}
	if spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		workload.SetDefault(&spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		workload.SetDefault(&spec.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		workload.SetDefault(&spec.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	workload.SetDefault(&spec.RevisionHistoryLimit, defaultHistory)
	defaults.Template(&spec.Template)
}

func templateChanged(d, old *appsv1.DaemonSet) bool {
	return !apiequality.Semantic.DeepEqual(d.Spec.Template, old.Spec.Template)
}

// templateGeneration is the count of templates, 0 where there is none. It is an annotation, which stands for a field of earlier versions of the API, and is
// still what conformance tests and older clients look at. Whoever makes a set may say where it begins; from then on it is the server's.
func templateGeneration(d *appsv1.DaemonSet) (int64, error) {
	value, ok := d.Annotations[appsv1.DeprecatedTemplateGeneration]
	if !ok {
		return 0, nil
	}
	return strconv.ParseInt(value, 10, 64)
}

func setTemplateGeneration(d *appsv1.DaemonSet, n int64) {
	metav1.SetMetaDataAnnotation(&d.ObjectMeta, appsv1.DeprecatedTemplateGeneration, strconv.FormatInt(n, 10))
}

func columns() []resource.Column[*appsv1.DaemonSet] {
	status, pod := appsv1.DaemonSetStatus{}.SwaggerDoc(), corev1.PodSpec{}.SwaggerDoc()
	all := []resource.Column[*appsv1.DaemonSet]{
		{Name: "Name"},
		workload.Count("Desired", status["desiredNumberScheduled"], func(d *appsv1.DaemonSet) int32 { return d.Status.DesiredNumberScheduled }),
		workload.Count("Current", status["currentNumberScheduled"], func(d *appsv1.DaemonSet) int32 { return d.Status.CurrentNumberScheduled }),
		workload.Count("Ready", status["numberReady"], func(d *appsv1.DaemonSet) int32 { return d.Status.NumberReady }),
		workload.Count("Up-to-date", status["updatedNumberScheduled"], func(d *appsv1.DaemonSet) int32 { return d.Status.UpdatedNumberScheduled }),
		workload.Count("Available", status["numberAvailable"], func(d *appsv1.DaemonSet) int32 { return d.Status.NumberAvailable }),
		{Name: "Node Selector", Doc: pod["nodeSelector"], Value: func(d *appsv1.DaemonSet) any { return labels.FormatLabels(d.Spec.Template.Spec.NodeSelector) }},
		{Name: "Age"},
	}
	all = append(all, workload.ContainerColumns(true, func(d *appsv1.DaemonSet) *corev1.PodTemplateSpec { return &d.Spec.Template })...)
	return append(all, resource.Column[*appsv1.DaemonSet]{Name: "Selector", Wide: true, Doc: appsv1.DaemonSetSpec{}.SwaggerDoc()["selector"],
		Value: func(d *appsv1.DaemonSet) any { return metav1.FormatLabelSelector(d.Spec.Selector) }})
}
