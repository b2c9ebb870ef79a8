package statefulset

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/registry/workload"
	"monopod.dev/monopod/internal/pods/validation"
)

func validate(s *appsv1.StatefulSet) field.ErrorList {
	errs := validateSpec(&s.Spec, nil)
	if name := s.Spec.ServiceName; name != "" { // a set that is there keeps its name, whatever it is
		for _, wrong := range utilvalidation.IsDNS1123Label(name) {
			errs = append(errs, field.Invalid(field.NewPath("spec", "serviceName"), name, wrong))
		}
	}
	// They never change, so those that are there are as they are.
	templates := field.NewPath("spec", "volumeClaimTemplates")
	for i := range s.Spec.VolumeClaimTemplates {
		errs = append(errs, validation.ClaimSpec(&s.Spec.VolumeClaimTemplates[i].Spec, templates.Index(i).Child("spec"))...)
	}
	return errs
}

// validateUpdate: pods that are there have their names, volumes and order from the rest of the specification.
func validateUpdate(s, old *appsv1.StatefulSet) field.ErrorList {
	errs := validateSpec(&s.Spec, templateToCheck(&old.Spec))
	kept := *s.Spec.DeepCopy()
	kept.Replicas = old.Spec.Replicas
	kept.Template = old.Spec.Template
	kept.UpdateStrategy = old.Spec.UpdateStrategy
	kept.MinReadySeconds = old.Spec.MinReadySeconds
	kept.Ordinals = old.Spec.Ordinals
	kept.RevisionHistoryLimit = old.Spec.RevisionHistoryLimit
	kept.PersistentVolumeClaimRetentionPolicy = old.Spec.PersistentVolumeClaimRetentionPolicy
	if !apiequality.Semantic.DeepEqual(kept, old.Spec) {
		errs = append(errs, field.Forbidden(field.NewPath("spec"), "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "+
			"'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"))
	}
	return errs
}

func validateSpec(spec *appsv1.StatefulSetSpec, old *corev1.PodTemplateSpec) field.ErrorList {
	at := field.NewPath("spec")
	errs := workload.NotNegative(at, workload.Optional("replicas", spec.Replicas), workload.Of("minReadySeconds", spec.MinReadySeconds))
	if spec.Ordinals != nil {
		errs = append(errs, workload.NotNegative(at.Child("ordinals"), workload.Of("start", spec.Ordinals.Start))...)
	}
	switch policy := spec.PodManagementPolicy; policy {
	case appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement:
	default:
		errs = append(errs, field.Invalid(at.Child("podManagementPolicy"), policy, "must be 'OrderedReady' or 'Parallel'"))
	}
	errs = append(errs, validateStrategy(&spec.UpdateStrategy, at.Child("updateStrategy"))...)
	if policy, at := spec.PersistentVolumeClaimRetentionPolicy, at.Child("persistentVolumeClaimRetentionPolicy"); policy != nil {
		errs = append(errs, validateRetention(policy.WhenDeleted, at.Child("whenDeleted"))...)
		errs = append(errs, validateRetention(policy.WhenScaled, at.Child("whenScaled"))...)
	}
	selects, wrong := workload.RequireSelector(spec.Selector, "statefulset", at.Child("selector"))
	errs = append(errs, wrong...)
	return append(errs, workload.ValidateTemplate(templateToCheck(spec), old, selects, "StatefulSet", at.Child("template"))...)
}

// templateToCheck is the template as far as pods have it: their hostname and subdomain are always those of the set, and they have volumes for its claims.
func templateToCheck(spec *appsv1.StatefulSetSpec) *corev1.PodTemplateSpec {
	template := spec.Template
	template.Spec.Hostname, template.Spec.Subdomain = "", ""
	template.Spec.Volumes = slices.Clone(template.Spec.Volumes)
	for i := range spec.VolumeClaimTemplates {
		name := spec.VolumeClaimTemplates[i].Name
		template.Spec.Volumes = append(slices.DeleteFunc(template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name }),
			corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}})
	}
	return &template
}

func validateStrategy(strategy *appsv1.StatefulSetUpdateStrategy, at *field.Path) field.ErrorList {
	rolling := at.Child("rollingUpdate")
	switch strategy.Type {
	case appsv1.OnDeleteStatefulSetStrategyType:
		if strategy.RollingUpdate != nil {
			return field.ErrorList{field.Invalid(rolling, strategy.RollingUpdate, "only allowed for updateStrategy 'RollingUpdate'")}
		}
		return nil
	case appsv1.RollingUpdateStatefulSetStrategyType:
		if strategy.RollingUpdate == nil {
			return nil
		}
	default:
		return field.ErrorList{field.Invalid(at, strategy, "must be 'RollingUpdate' or 'OnDelete'")}
	}
	errs := workload.NotNegative(rolling, workload.Optional("partition", strategy.RollingUpdate.Partition))
	if most, at := strategy.RollingUpdate.MaxUnavailable, rolling.Child("maxUnavailable"); most != nil {
		wrong := workload.ValidateShare(most, at)
		if len(wrong) == 0 && workload.IsZero(most) {
			wrong = append(wrong, field.Invalid(at, most, "cannot be 0"))
		}
		errs = append(append(errs, wrong...), workload.NotMoreThanAll(most, at)...)
	}
	return errs
}

func validateRetention(policy appsv1.PersistentVolumeClaimRetentionPolicyType, at *field.Path) field.ErrorList {
	all := []appsv1.PersistentVolumeClaimRetentionPolicyType{
		appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType}
	if slices.Contains(all, policy) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, policy, all)}
}

func validateStatus(s, old *appsv1.StatefulSet) field.ErrorList {
	is, at := &s.Status, field.NewPath("status")
	errs := workload.Counts{
		Replicas: is.Replicas, Ready: is.ReadyReplicas, Available: is.AvailableReplicas,
		Parts:  []workload.Number{workload.Of("currentReplicas", is.CurrentReplicas), workload.Of("updatedReplicas", is.UpdatedReplicas)},
		Others: []workload.Number{workload.Of("observedGeneration", is.ObservedGeneration), workload.Optional("collisionCount", is.CollisionCount)},
	}.Validate(at)
	return append(errs, workload.NotDecremented(is.CollisionCount, old.Status.CollisionCount, at)...)
}
