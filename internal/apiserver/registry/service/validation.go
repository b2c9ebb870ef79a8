package service

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/addresses"
)

var (
	types = []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName}
	// traffic are the policies of external and of internal traffic.
	external     = []corev1.ServiceExternalTrafficPolicy{corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal}
	internal     = []corev1.ServiceInternalTrafficPolicy{corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal}
	distribution = []string{corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode}
	affinities   = []corev1.ServiceAffinity{corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone}
	families     = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	policies     = []corev1.IPFamilyPolicy{corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack}
)

// maxAffinity is how long clients can be sent to the same endpoint, in seconds: a day.
const maxAffinity = 86400

// sourceRangesKey is the annotation that spec.loadBalancerSourceRanges was at first.
const sourceRangesKey = corev1.AnnotationLoadBalancerSourceRangesKey

// validate tells what is wrong with a service, beside its metadata.
func validate(s *corev1.Service) (errs field.ErrorList) {
	spec, at := &s.Spec, field.NewPath("spec")
	if spec.Type == "" {
		errs = append(errs, field.Required(at.Child("type"), ""))
	} else if !slices.Contains(types, spec.Type) {
		errs = append(errs, field.NotSupported(at.Child("type"), spec.Type, types))
	}
	errs = append(errs, validatePorts(s, at.Child("ports"))...)
	errs = append(errs, validateClusterIPs(s, at)...)
	errs = append(errs, validateFamilies(s, at)...)
	errs = append(errs, metavalidation.ValidateLabels(spec.Selector, at.Child("selector"))...)
	errs = append(errs, validateAffinity(spec, at)...)
	for i, ip := range spec.ExternalIPs {
		errs = append(errs, addresses.Endpoint(ip, at.Child("externalIPs").Index(i))...)
	}
	if spec.Type == corev1.ServiceTypeExternalName {
		name := strings.TrimSuffix(spec.ExternalName, ".")
		if name == "" {
			errs = append(errs, field.Required(at.Child("externalName"), ""))
		} else {
			errs = append(errs, invalid(name, at.Child("externalName"), validation.IsDNS1123Subdomain)...)
		}
	}
	errs = append(errs, validateLoadBalancer(s, at)...)
	return append(errs, validateTraffic(s, at)...)
}

func validateClusterIPs(s *corev1.Service, at *field.Path) (errs field.ErrorList) {
	spec, list := &s.Spec, at.Child("clusterIPs")
	if spec.Type == corev1.ServiceTypeExternalName {
		if spec.ClusterIP != "" || len(spec.ClusterIPs) > 0 {
			errs = append(errs, field.Forbidden(list, "may not be set for ExternalName services"))
		}
		return errs
	}
	if isHeadless(s) && mayHaveNodePort(s) {
		errs = append(errs, field.Invalid(list.Index(0), corev1.ClusterIPNone, fmt.Sprintf("may not be set to 'None' for %s services", spec.Type)))
	}
	if len(spec.ClusterIPs) == 0 {
		if spec.ClusterIP != "" {
			errs = append(errs, field.Required(list, ""))
		}
		return errs
	}
	if spec.ClusterIP != spec.ClusterIPs[0] {
		errs = append(errs, field.Invalid(list, spec.ClusterIPs, "first value must match `clusterIP`"))
	}
	if n := len(spec.ClusterIPs); n > 2 {
		return append(errs, field.Invalid(list, spec.ClusterIPs, "may only hold up to 2 values"))
	}
	for i, ip := range spec.ClusterIPs {
		switch {
		case ip == corev1.ClusterIPNone && len(spec.ClusterIPs) > 1:
			errs = append(errs, field.Invalid(list.Index(i), ip, "'None' must be the first and only value"))
		case ip != corev1.ClusterIPNone:
			errs = append(errs, addresses.Valid(ip, list.Index(i))...)
		}
	}
	if len(spec.ClusterIPs) == 2 && len(errs) == 0 && familyOf(spec.ClusterIPs[0]) == familyOf(spec.ClusterIPs[1]) {
		errs = append(errs, field.Invalid(list, spec.ClusterIPs, "may specify no more than one IP for each IP family"))
	}
	return errs
}

func validateFamilies(s *corev1.Service, at *field.Path) (errs field.ErrorList) {
	spec, list := &s.Spec, at.Child("ipFamilies")
	if spec.Type == corev1.ServiceTypeExternalName {
		if spec.IPFamilyPolicy != nil {
			errs = append(errs, field.Forbidden(at.Child("ipFamilyPolicy"), "may not be set for ExternalName services"))
		}
		if len(spec.IPFamilies) > 0 {
			errs = append(errs, field.Forbidden(list, "may not be set for ExternalName services"))
		}
		return errs
	}
	if p := spec.IPFamilyPolicy; p != nil && !slices.Contains(policies, *p) {
		errs = append(errs, field.NotSupported(at.Child("ipFamilyPolicy"), *p, policies))
	}
	if len(spec.IPFamilies) > 2 {
		errs = append(errs, field.Invalid(list, spec.IPFamilies, "may only hold up to 2 values"))
	}
	for i, f := range spec.IPFamilies {
		if !slices.Contains(families, f) {
			errs = append(errs, field.NotSupported(list.Index(i), f, families))
		}
		if slices.Contains(spec.IPFamilies[:i], f) {
			errs = append(errs, field.Duplicate(list.Index(i), f))
		}
	}
	return errs
}

func validateAffinity(spec *corev1.ServiceSpec, at *field.Path) (errs field.ErrorList) {
	if !slices.Contains(affinities, spec.SessionAffinity) {
		return field.ErrorList{field.NotSupported(at.Child("sessionAffinity"), spec.SessionAffinity, affinities)}
	}
	config := at.Child("sessionAffinityConfig")
	if spec.SessionAffinity == corev1.ServiceAffinityNone {
		if spec.SessionAffinityConfig != nil {
			errs = append(errs, field.Forbidden(config, "must not be set when session affinity is None"))
		}
		return errs
	}
	c := spec.SessionAffinityConfig
	if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
		return field.ErrorList{field.Required(config.Child("clientIP", "timeoutSeconds"), "when session affinity is ClientIP")}
	}
	if n := *c.ClientIP.TimeoutSeconds; n < 1 || n > maxAffinity {
		errs = append(errs, field.Invalid(config.Child("clientIP", "timeoutSeconds"), n, validation.InclusiveRangeError(1, maxAffinity)))
	}
	return errs
}

func validateLoadBalancer(s *corev1.Service, at *field.Path) (errs field.ErrorList) {
	spec, is := &s.Spec, s.Spec.Type == corev1.ServiceTypeLoadBalancer
	only := func(set bool, path *field.Path) {
		if set && !is {
			errs = append(errs, field.Forbidden(path, "may only be used when `type` is 'LoadBalancer'"))
		}
	}
	ranges, where := spec.LoadBalancerSourceRanges, at.Child("loadBalancerSourceRanges")
	if value, ok := s.Annotations[sourceRangesKey]; ok && len(ranges) == 0 {
		where = field.NewPath("metadata", "annotations").Key(sourceRangesKey)
		if value = strings.TrimSpace(value); value != "" {
			ranges = strings.Split(value, ",")
		}
		only(true, where)
	}
	only(len(spec.LoadBalancerSourceRanges) > 0, where)
	for i, r := range ranges {
		if _, err := netip.ParsePrefix(strings.TrimSpace(r)); err != nil {
			errs = append(errs, field.Invalid(where.Index(i), r, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"))
		}
	}
	allocate, class := at.Child("allocateLoadBalancerNodePorts"), at.Child("loadBalancerClass")
	only(spec.AllocateLoadBalancerNodePorts != nil, allocate)
	if is && spec.AllocateLoadBalancerNodePorts == nil {
		errs = append(errs, field.Required(allocate, ""))
	}
	only(spec.LoadBalancerClass != nil, class)
	if spec.LoadBalancerClass != nil {
		errs = append(errs, invalid(*spec.LoadBalancerClass, class, validation.IsQualifiedName)...)
	}
	return errs
}

func validateTraffic(s *corev1.Service, at *field.Path) (errs field.ErrorList) {
	spec := &s.Spec
	switch path := at.Child("externalTrafficPolicy"); {
	case !isExternal(s):
		if spec.ExternalTrafficPolicy != "" {
			errs = append(errs, field.Invalid(path, spec.ExternalTrafficPolicy, "may only be set for externally-accessible services"))
		}
	case spec.ExternalTrafficPolicy == "":
		errs = append(errs, field.Required(path, "for externally-accessible services"))
	case !slices.Contains(external, spec.ExternalTrafficPolicy):
		errs = append(errs, field.NotSupported(path, spec.ExternalTrafficPolicy, external))
	}
	switch path, p := at.Child("internalTrafficPolicy"), spec.InternalTrafficPolicy; {
	case p == nil && needsClusterIP(s):
		errs = append(errs, field.Required(path, ""))
	case p != nil && !slices.Contains(internal, *p):
		errs = append(errs, field.NotSupported(path, *p, internal))
	}
	if d := spec.TrafficDistribution; d != nil && !slices.Contains(distribution, *d) {
		errs = append(errs, field.NotSupported(at.Child("trafficDistribution"), *d, distribution))
	}
	switch path, port := at.Child("healthCheckNodePort"), spec.HealthCheckNodePort; {
	case !needsHealthCheckPort(s):
		if port != 0 {
			errs = append(errs, field.Invalid(path, port, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
		}
	case port < 0 || port > maxPort:
		errs = append(errs, field.Invalid(path, port, validation.InclusiveRangeError(1, maxPort)))
	}
	return errs
}

func invalid(value string, at *field.Path, check func(string) []string) (errs field.ErrorList) {
	for _, msg := range check(value) {
		errs = append(errs, field.Invalid(at, value, msg))
	}
	return errs
}
