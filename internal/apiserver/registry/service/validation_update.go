package service

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/addresses"
)

func validateUpdate(s, old *corev1.Service) (errs field.ErrorList) {
	at := field.NewPath("spec")
	// What the service is reached by stays as long as it has an address at all. A second address may come, and go.
	if needsClusterIP(s) && needsClusterIP(old) {
		if old.Spec.ClusterIP != "" && s.Spec.ClusterIP != old.Spec.ClusterIP {
			errs = append(errs, field.Invalid(at.Child("clusterIPs").Index(0), s.Spec.ClusterIPs, "may not change once set"))
		}
		if n, was := s.Spec.ClusterIPs, old.Spec.ClusterIPs; len(n) > 1 && len(was) > 1 && n[1] != was[1] {
			errs = append(errs, field.Invalid(at.Child("clusterIPs").Index(1), n, "may not change once set"))
		}
		if n, was := s.Spec.IPFamilies, old.Spec.IPFamilies; len(was) > 0 && (len(n) == 0 || n[0] != was[0]) {
			errs = append(errs, field.Invalid(at.Child("ipFamilies").Index(0), n, "may not change once set"))
		}
	}
	// A load balancer is of the class that it was made with.
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer && old.Spec.Type == corev1.ServiceTypeLoadBalancer {
		errs = append(errs, apivalidation.ValidateImmutableField(s.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass, at.Child("loadBalancerClass"))...)
	}
	if needsHealthCheckPort(s) && needsHealthCheckPort(old) && s.Spec.HealthCheckNodePort != old.Spec.HealthCheckNodePort {
		errs = append(errs, field.Forbidden(at.Child("healthCheckNodePort"), "field is immutable"))
	}
	return append(errs, validate(s)...)
}

var modes = []corev1.LoadBalancerIPMode{corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy}

func validateStatus(s, _ *corev1.Service) (errs field.ErrorList) {
	at := field.NewPath("status", "loadBalancer", "ingress")
	if len(s.Status.LoadBalancer.Ingress) > 0 && s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		errs = append(errs, field.Forbidden(at, "may only be used when `spec.type` is 'LoadBalancer'"))
	}
	for i, ingress := range s.Status.LoadBalancer.Ingress {
		at := at.Index(i)
		if ingress.IP != "" {
			errs = append(errs, addresses.Valid(ingress.IP, at.Child("ip"))...)
		}
		switch mode := ingress.IPMode; {
		case mode == nil:
		case ingress.IP == "":
			errs = append(errs, field.Forbidden(at.Child("ipMode"), "may not be specified when `ip` is not set"))
		case !slices.Contains(modes, *mode):
			errs = append(errs, field.NotSupported(at.Child("ipMode"), *mode, modes))
		}
		if ingress.Hostname != "" {
			errs = append(errs, invalid(ingress.Hostname, at.Child("hostname"), validation.IsDNS1123Subdomain)...)
			if _, ok := addresses.Parse(ingress.Hostname); ok {
				errs = append(errs, field.Invalid(at.Child("hostname"), ingress.Hostname, "must be a DNS name, not an IP address"))
			}
		}
	}
	return errs // conditions are not looked at: upstream takes those without a time, too
}

// warnings tells what is legal but hardly meant.
func warnings(s *corev1.Service) (list []string) {
	if isHeadless(s) {
		if s.Spec.LoadBalancerIP != "" {
			list = append(list, "spec.loadBalancerIP is ignored when spec.clusterIP is \"None\"")
		}
		if len(s.Spec.ExternalIPs) > 0 {
			list = append(list, "spec.externalIPs is ignored when spec.clusterIP is \"None\"")
		}
		if s.Spec.SessionAffinity != corev1.ServiceAffinityNone {
			list = append(list, "spec.SessionAffinity is ignored for headless services")
		}
	}
	if s.Spec.ExternalName != "" && s.Spec.Type != corev1.ServiceTypeExternalName {
		list = append(list, "spec.externalName is ignored when spec.type is not \"ExternalName\"")
	}
	return list
}
