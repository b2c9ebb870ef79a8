package service

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// What the types of services have.

func needsClusterIP(s *corev1.Service) bool {
	switch s.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		return true
	}
	return false
}

// isHeadless: it has no address of its own, by its own word.
func isHeadless(s *corev1.Service) bool {
	return s.Spec.ClusterIP == corev1.ClusterIPNone || slices.Equal(s.Spec.ClusterIPs, []string{corev1.ClusterIPNone})
}

func needsNodePort(s *corev1.Service) bool {
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		return s.Spec.AllocateLoadBalancerNodePorts == nil || *s.Spec.AllocateLoadBalancerNodePorts
	}
	return s.Spec.Type == corev1.ServiceTypeNodePort
}

// mayHaveNodePort: a load balancer that asks for no node ports may still name some.
func mayHaveNodePort(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
}

func needsHealthCheckPort(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// isExternal: it is reached from outside of the cluster.
func isExternal(s *corev1.Service) bool {
	return mayHaveNodePort(s) || s.Spec.Type == corev1.ServiceTypeClusterIP && len(s.Spec.ExternalIPs) > 0
}

func isDual(p *corev1.IPFamilyPolicy) bool {
	return p != nil && (*p == corev1.IPFamilyPolicyPreferDualStack || *p == corev1.IPFamilyPolicyRequireDualStack)
}
