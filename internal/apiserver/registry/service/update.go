package service

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// agree makes clusterIP and clusterIPs agree where a client has written one of them only: one that knows only the older field clears, or changes, only that.
func agree(s, old *corev1.Service) {
	spec := &s.Spec
	if old == nil {
		if spec.ClusterIP != "" && len(spec.ClusterIPs) == 0 {
			spec.ClusterIPs = []string{spec.ClusterIP}
		}
		if spec.ClusterIP == "" && len(spec.ClusterIPs) > 0 && spec.ClusterIPs[0] != "" {
			spec.ClusterIP = spec.ClusterIPs[0]
		}
		return
	}
	same := slices.Equal(spec.ClusterIPs, old.Spec.ClusterIPs)
	switch {
	case spec.ClusterIP == old.Spec.ClusterIP:
		if !same && len(spec.ClusterIPs) > 0 && old.Spec.ClusterIP == "" {
			spec.ClusterIP = spec.ClusterIPs[0]
		}
	case spec.ClusterIP == "" && same:
		spec.ClusterIPs = nil
	case spec.ClusterIP != "" && (same || len(spec.ClusterIPs) == 0):
		spec.ClusterIPs = append([]string{spec.ClusterIP}, tail(spec.ClusterIPs)...)
	}
}

func tail(list []string) []string {
	if len(list) < 2 {
		return nil
	}
	return list[1:]
}

// keep gives an update what the service was given earlier, and a client has left out: it replaces a service by a manifest.
func keep(s, old *corev1.Service) {
	if needsClusterIP(s) && needsClusterIP(old) {
		if s.Spec.ClusterIP == "" {
			s.Spec.ClusterIP = old.Spec.ClusterIP
		}
		if len(s.Spec.ClusterIPs) == 0 && s.Spec.ClusterIP == old.Spec.ClusterIP {
			s.Spec.ClusterIPs = slices.Clone(old.Spec.ClusterIPs)
		}
	}
	if needsNodePort(s) && needsNodePort(old) {
		keepNodePorts(s, old)
	}
	if needsHealthCheckPort(s) && needsHealthCheckPort(old) && s.Spec.HealthCheckNodePort == 0 {
		s.Spec.HealthCheckNodePort = old.Spec.HealthCheckNodePort
	}
}

// numbered is what a port of a service is known by.
type numbered struct {
	protocol corev1.Protocol
	port     int32
}

func keepNodePorts(s, old *corev1.Service) {
	was, used := map[numbered]int32{}, map[int32]bool{}
	for _, p := range old.Spec.Ports {
		was[numbered{p.Protocol, p.Port}] = p.NodePort
	}
	for _, p := range s.Spec.Ports {
		used[p.NodePort] = true
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if n := was[numbered{p.Protocol, p.Port}]; p.NodePort == 0 && n != 0 && !used[n] {
			p.NodePort = n
		}
	}
}

// drop takes away what the service had by its former type and has not by its new one, as long as the client has not changed it: who patches the type
// does not think of all that belongs to it.
func drop(s, old *corev1.Service) {
	spec, was := &s.Spec, &old.Spec
	if needsClusterIP(old) && !needsClusterIP(s) {
		if spec.ClusterIP == was.ClusterIP && slices.Equal(spec.ClusterIPs, was.ClusterIPs) {
			spec.ClusterIP, spec.ClusterIPs = "", nil
		}
		if slices.Equal(spec.IPFamilies, was.IPFamilies) {
			spec.IPFamilies = nil
		}
		if equal(spec.IPFamilyPolicy, was.IPFamilyPolicy) {
			spec.IPFamilyPolicy = nil
		}
		if equal(spec.InternalTrafficPolicy, was.InternalTrafficPolicy) {
			spec.InternalTrafficPolicy = nil
		}
	}
	if mayHaveNodePort(old) && !mayHaveNodePort(s) && slices.Equal(nodePorts(s), nodePorts(old)) {
		for i := range spec.Ports {
			spec.Ports[i].NodePort = 0
		}
	}
	if needsHealthCheckPort(old) && !needsHealthCheckPort(s) && spec.HealthCheckNodePort == was.HealthCheckNodePort {
		spec.HealthCheckNodePort = 0
	}
	if was.Type == corev1.ServiceTypeLoadBalancer && spec.Type != corev1.ServiceTypeLoadBalancer {
		if equal(spec.AllocateLoadBalancerNodePorts, was.AllocateLoadBalancerNodePorts) {
			spec.AllocateLoadBalancerNodePorts = nil
		}
		if equal(spec.LoadBalancerClass, was.LoadBalancerClass) {
			spec.LoadBalancerClass = nil
		}
	}
	if isExternal(old) && !isExternal(s) && spec.ExternalTrafficPolicy == was.ExternalTrafficPolicy {
		spec.ExternalTrafficPolicy = ""
	}
}

func nodePorts(s *corev1.Service) (all []int32) {
	for _, p := range s.Spec.Ports {
		all = append(all, p.NodePort)
	}
	return all
}

func equal[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}
