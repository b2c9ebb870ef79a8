package view

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"monopod.dev/monopod/internal/dns/answer"
)

// object is what of a Service names are made of.
type object struct {
	external          string
	headless, unready bool
	addresses         []netip.Addr
	ports             []answer.Port
}

// slice is what of an EndpointSlice names are made of.
type slice struct {
	service   string
	ports     []answer.Port
	endpoints []endpoint
}

type endpoint struct {
	address  netip.Addr
	hostname string
	ready    bool
}

// objectOf reads a service.
func objectOf(s *corev1.Service) *object {
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return &object{external: strings.Clone(s.Spec.ExternalName)}
	}
	o := &object{headless: s.Spec.ClusterIP == corev1.ClusterIPNone, unready: s.Spec.PublishNotReadyAddresses}
	if !o.headless {
		all := s.Spec.ClusterIPs
		if len(all) == 0 {
			all = []string{s.Spec.ClusterIP}
		}
		for _, ip := range all {
			if a, err := netip.ParseAddr(ip); err == nil {
				o.addresses = append(o.addresses, a)
			}
		}
		for i := range s.Spec.Ports {
			p := &s.Spec.Ports[i]
			o.ports = appendPort(o.ports, p.Name, p.Protocol, p.Port)
		}
	}
	o.addresses, o.ports = slices.Clip(o.addresses), slices.Clip(o.ports)
	return o
}

// sliceOf reads a slice; nil: it is about no service, or about names, which DNS has no records of.
func sliceOf(s *discoveryv1.EndpointSlice) *slice {
	of := s.Labels[discoveryv1.LabelServiceName]
	if of == "" || s.AddressType == discoveryv1.AddressTypeFQDN {
		return nil
	}
	part := &slice{service: strings.Clone(of)}
	for i := range s.Ports {
		p := &s.Ports[i]
		if p.Name != nil && p.Port != nil {
			protocol := corev1.ProtocolTCP
			if p.Protocol != nil {
				protocol = *p.Protocol
			}
			part.ports = appendPort(part.ports, *p.Name, protocol, *p.Port)
		}
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		one := endpoint{ready: e.Conditions.Ready == nil || *e.Conditions.Ready}
		if e.Hostname != nil {
			one.hostname = strings.Clone(strings.ToLower(*e.Hostname))
		}
		for _, ip := range e.Addresses {
			if a, err := netip.ParseAddr(ip); err == nil {
				one.address = a
				part.endpoints = append(part.endpoints, one)
			}
		}
	}
	part.endpoints, part.ports = slices.Clip(part.endpoints), slices.Clip(part.ports)
	return part
}

// appendPort adds a port that has a name: others have no records.
func appendPort(all []answer.Port, name string, protocol corev1.Protocol, number int32) []answer.Port {
	if name == "" {
		return all
	}
	if protocol == "" {
		protocol = corev1.ProtocolTCP
	}
	// Most ports have one of a few names; those of an object are parts of the whole message that it came in.
	return append(all, answer.Port{Name: strings.Clone(name), Protocol: protocolName(protocol), Number: uint16(number)}) // a port
}

func protocolName(p corev1.Protocol) string {
	switch p {
	case corev1.ProtocolTCP:
		return "tcp"
	case corev1.ProtocolUDP:
		return "udp"
	case corev1.ProtocolSCTP:
		return "sctp"
	}
	return strings.ToLower(string(p))
}
