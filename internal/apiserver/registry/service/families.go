package service

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/addresses"
)

func familyOf(ip string) corev1.IPFamily {
	if a, ok := addresses.Parse(ip); ok && a.Is6() {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

func otherFamily(f corev1.IPFamily) corev1.IPFamily {
	if f == corev1.IPv4Protocol {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// completeFamilies fills in the families of a service's addresses, and the policy that they are by, from each other, from the addresses that it names
// and from the families that there are: at least one, the usual one first. What it cannot do it says.
func completeFamilies(s, old *corev1.Service, there []corev1.IPFamily) (errs field.ErrorList) {
	if !needsClusterIP(s) {
		return nil
	}
	spec := &s.Spec
	if old != nil && needsClusterIP(old) {
		narrow(s, old)
	}
	errs = familiesOfAddresses(spec)
	if spec.IPFamilyPolicy == nil {
		policy := corev1.IPFamilyPolicySingleStack
		if len(spec.ClusterIPs) > 1 || len(spec.IPFamilies) > 1 || isHeadless(s) && len(spec.Selector) == 0 {
			policy = corev1.IPFamilyPolicyRequireDualStack
		}
		spec.IPFamilyPolicy = &policy
	}
	policy := field.NewPath("spec", "ipFamilyPolicy")
	if !isDual(spec.IPFamilyPolicy) && (len(spec.IPFamilies) > 1 || len(spec.ClusterIPs) > 1) {
		errs = append(errs, field.Invalid(policy, *spec.IPFamilyPolicy,
			"must be 'RequireDualStack' or 'PreferDualStack' when multiple 'ipFamilies' or 'clusterIPs' are specified"))
	}
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{there[0]}
	}
	if isHeadless(s) && len(spec.Selector) == 0 {
		// Its endpoints are what somebody writes, of whatever family.
		if isDual(spec.IPFamilyPolicy) && len(spec.IPFamilies) == 1 {
			spec.IPFamilies = append(spec.IPFamilies, otherFamily(spec.IPFamilies[0]))
		}
		return errs
	}
	for i, f := range spec.IPFamilies {
		if !slices.Contains(there, f) {
			errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilies").Index(i), f, "not configured on this cluster"))
		}
	}
	switch {
	case *spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack && len(there) < 2:
		errs = append(errs, field.Invalid(policy, *spec.IPFamilyPolicy, "this cluster is not configured for dual-stack services"))
	case isDual(spec.IPFamilyPolicy) && len(there) == 2 && len(spec.IPFamilies) == 1:
		spec.IPFamilies = append(spec.IPFamilies, otherFamily(spec.IPFamilies[0]))
	}
	return errs
}

// familiesOfAddresses: an address that is named is of a family.
func familiesOfAddresses(spec *corev1.ServiceSpec) (errs field.ErrorList) {
	for i, ip := range spec.ClusterIPs {
		if _, ok := addresses.Parse(ip); !ok || i > 1 {
			continue // the validation says so
		}
		switch family := familyOf(ip); {
		case i == len(spec.IPFamilies):
			spec.IPFamilies = append(spec.IPFamilies, family)
		case i < len(spec.IPFamilies) && spec.IPFamilies[i] != family:
			errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilies").Index(i), spec.IPFamilies[i],
				"expected "+string(family)+" to match `clusterIPs["+string(rune('0'+i))+"]`"))
		}
	}
	return errs
}

// narrow takes the second address away from a service that is to have one only: of the change of the policy alone follows the rest.
func narrow(s, old *corev1.Service) {
	single := s.Spec.IPFamilyPolicy != nil && *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack
	if !single || !isDual(old.Spec.IPFamilyPolicy) {
		return
	}
	if len(s.Spec.ClusterIPs) > 1 && slices.Equal(s.Spec.ClusterIPs, old.Spec.ClusterIPs) {
		s.Spec.ClusterIPs = s.Spec.ClusterIPs[:1]
	}
	if len(s.Spec.IPFamilies) > 1 && slices.Equal(s.Spec.IPFamilies, old.Spec.IPFamilies) {
		s.Spec.IPFamilies = s.Spec.IPFamilies[:1]
	}
}
