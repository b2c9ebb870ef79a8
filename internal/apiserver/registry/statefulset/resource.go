// Package statefulset serves the resource statefulsets of apps/v1, and its subresources status and scale.
package statefulset

import (
	"fmt"
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod.dev/monopod/internal/apiserver/registry/persistentvolumeclaim"
	"monopod.dev/monopod/internal/apiserver/registry/workload"
	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
	"monopod.dev/monopod/internal/pods/defaults"
)

// Resource is the resource statefulsets. Which fields of a pod are honoured, the pods' own table says.
func Resource() resource.Of[*appsv1.StatefulSet, *appsv1.StatefulSetList] {
	return resource.Of[*appsv1.StatefulSet, *appsv1.StatefulSetList]{
		Group:      appsv1.GroupName,
		Plural:     "statefulsets",
		Short:      []string{"sts"},
		Categories: []string{"all"},
		Namespaced: true,
		ReadBy:     resource.Viewer,
		WrittenBy:  resource.Editor,
		Honours:    table(),
		Default:    setDefaults,
		// The names of its pods, which are their host names, begin with it.
		Names:  apivalidation.NameIsDNSLabel,
		Create: validate,
		Update: validateUpdate,
		Warn: func(s *appsv1.StatefulSet) []string {
			return append(workload.Warnings(&s.Spec.Template), historyWarnings(s)...)
		},
		WarnUpdate: func(s, old *appsv1.StatefulSet) (all []string) {
			if s.Generation != old.Generation {
				all = workload.Warnings(&s.Spec.Template)
			}
			return append(all, historyWarnings(s)...)
		},
		Generation: true,
		Status:     &resource.Status[*appsv1.StatefulSet]{Update: validateStatus},
		Columns:    columns(),
		Parts: map[string]resource.Part{"scale": workload.Scalable[*appsv1.StatefulSet]{
			Version:  appsv1.SchemeGroupVersion,
			Replicas: func(s *appsv1.StatefulSet) **int32 { return &s.Spec.Replicas },
			Pods: func(s *appsv1.StatefulSet) (int32, labels.Selector, error) {
				selector, err := metav1.LabelSelectorAsSelector(s.Spec.Selector)
				return s.Status.Replicas, selector, err
			},
		}.Part()},
	}
}

func table() apifields.Table {
	return persistentvolumeclaim.Honours().With(apifields.Table{
		reflect.TypeFor[appsv1.StatefulSet](): apifields.All("Spec").And(apifields.Left, "Status"),
		reflect.TypeFor[appsv1.StatefulSetSpec](): apifields.All("Replicas", "Selector", "ServiceName", "PodManagementPolicy", "UpdateStrategy", "RevisionHistoryLimit",
			"MinReadySeconds", "PersistentVolumeClaimRetentionPolicy", "Ordinals", "VolumeClaimTemplates").And(apifields.Left, "Template"),
		reflect.TypeFor[appsv1.StatefulSetUpdateStrategy]():                       apifields.All("Type", "RollingUpdate"),
		reflect.TypeFor[appsv1.RollingUpdateStatefulSetStrategy]():                apifields.All("Partition", "MaxUnavailable"),
		reflect.TypeFor[appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy](): apifields.All("WhenDeleted", "WhenScaled"),
		reflect.TypeFor[appsv1.StatefulSetOrdinals]():                             apifields.All("Start"),
	})
}

// defaultHistory is how many revisions are kept of a set that does not say.
const defaultHistory = 10

func setDefaults(s *appsv1.StatefulSet) {
	spec := &s.Spec
	if spec.PodManagementPolicy == "" {
		spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement
	}
	if spec.UpdateStrategy.Type == "" {
		spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		workload.SetDefault(&spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if rolling := spec.UpdateStrategy.RollingUpdate; rolling != nil && spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		workload.SetDefault(&rolling.Partition, 0)
		workload.SetDefault(&rolling.MaxUnavailable, intstr.FromInt32(1))
	}
	workload.SetDefault(&spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	for _, policy := range []*appsv1.PersistentVolumeClaimRetentionPolicyType{
		&spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted, &spec.PersistentVolumeClaimRetentionPolicy.WhenScaled,
	} {
		if *policy == "" {
			*policy = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
		}
	}
	for i := range spec.VolumeClaimTemplates {
		claim := &spec.VolumeClaimTemplates[i]
		claim.APIVersion, claim.Kind = corev1.SchemeGroupVersion.Version, "PersistentVolumeClaim" // as everybody shows them, whatever was written
		persistentvolumeclaim.SetDefaults(claim)
	}
	workload.SetDefault(&spec.Replicas, 1)
	workload.SetDefault(&spec.RevisionHistoryLimit, defaultHistory)
	defaults.Template(&spec.Template)
}

func historyWarnings(s *appsv1.StatefulSet) []string {
	if limit := s.Spec.RevisionHistoryLimit; limit != nil && *limit < 0 {
		return []string{"spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"}
	}
	return nil
}

func columns() []resource.Column[*appsv1.StatefulSet] {
	return append([]resource.Column[*appsv1.StatefulSet]{
		{Name: "Name"},
		{Name: "Ready", Doc: "Number of the pod with ready state", Value: func(s *appsv1.StatefulSet) any {
			return fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, workload.Wanted(s.Spec.Replicas))
		}},
		{Name: "Age"},
	}, workload.ContainerColumns(true, func(s *appsv1.StatefulSet) *corev1.PodTemplateSpec { return &s.Spec.Template })...)
}
