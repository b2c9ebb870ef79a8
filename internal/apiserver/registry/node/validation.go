package node

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validate(n *corev1.Node) field.ErrorList {
	errs := validateSpec(&n.Spec, field.NewPath("spec"))
	return append(errs, validateStatus(&n.Status, field.NewPath("status"))...)
}

func validateUpdate(n, old *corev1.Node) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	// Set once, by whoever gives the node its range or its identity: what was derived from them cannot follow a change.
	if old.Spec.PodCIDR != "" {
		errs = append(errs, apivalidation.ValidateImmutableField(n.Spec.PodCIDR, old.Spec.PodCIDR, spec.Child("podCIDR"))...)
	}
	if len(old.Spec.PodCIDRs) > 0 {
		errs = append(errs, apivalidation.ValidateImmutableField(n.Spec.PodCIDRs, old.Spec.PodCIDRs, spec.Child("podCIDRs"))...)
	}
	if old.Spec.ProviderID != "" {
		errs = append(errs, apivalidation.ValidateImmutableField(n.Spec.ProviderID, old.Spec.ProviderID, spec.Child("providerID"))...)
	}
	return append(errs, validate(n)...)
}

func validateSpec(s *corev1.NodeSpec, path *field.Path) (errs field.ErrorList) {
	errs = append(errs, validateTaints(s.Taints, path.Child("taints"))...)
	for i, cidr := range s.PodCIDRs {
		if _, err := netip.ParsePrefix(cidr); err != nil {
			errs = append(errs, field.Invalid(path.Child("podCIDRs").Index(i), cidr, "must be a range of addresses such as 10.61.0.0/16"))
		}
	}
	if s.PodCIDR != "" && (len(s.PodCIDRs) == 0 || s.PodCIDRs[0] != s.PodCIDR) {
		errs = append(errs, field.Invalid(path.Child("podCIDR"), s.PodCIDR, "must be the first of `podCIDRs`"))
	}
	return errs
}

func validateTaints(taints []corev1.Taint, path *field.Path) (errs field.ErrorList) {
	type identity struct {
		key    string
		effect corev1.TaintEffect
	}
	seen := map[identity]bool{}
	for i, t := range taints {
		at := path.Index(i)
		errs = append(errs, metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
		for _, msg := range validation.IsValidLabelValue(t.Value) {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, msg))
		}
		switch t.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			errs = append(errs, field.NotSupported(at.Child("effect"), t.Effect, []corev1.TaintEffect{
				corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}))
		}
		if id := (identity{t.Key, t.Effect}); seen[id] {
			errs = append(errs, field.Duplicate(at, t.Key+":"+string(t.Effect)))
		} else {
			seen[id] = true
		}
	}
	return errs
}

func validateStatus(s *corev1.NodeStatus, path *field.Path) (errs field.ErrorList) {
	errs = append(errs, validateResources(s.Capacity, path.Child("capacity"))...)
	errs = append(errs, validateResources(s.Allocatable, path.Child("allocatable"))...)
	seen := map[corev1.NodeAddress]bool{}
	for i, a := range s.Addresses {
		if seen[a] {
			errs = append(errs, field.Duplicate(path.Child("addresses").Index(i), a))
		}
		seen[a] = true
	}
	if p := s.DaemonEndpoints.KubeletEndpoint.Port; p < 0 || p > 65535 {
		errs = append(errs, field.Invalid(path.Child("daemonEndpoints", "kubeletEndpoint", "Port"), p, validation.InclusiveRangeError(0, 65535)))
	}
	return errs
}

func validateResources(list corev1.ResourceList, path *field.Path) (errs field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		quantity := list[name]
		at := path.Key(string(name))
		for _, msg := range validation.IsQualifiedName(string(name)) {
			errs = append(errs, field.Invalid(at, name, msg))
		}
		if quantity.Sign() < 0 {
			errs = append(errs, field.Invalid(at, quantity.String(), "must be greater than or equal to 0"))
		}
	}
	return errs
}
