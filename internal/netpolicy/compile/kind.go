package compile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Protocols are the numbers of the protocols that ports can have (IANA).
var Protocols = map[corev1.Protocol]byte{corev1.ProtocolTCP: 6, corev1.ProtocolUDP: 17, corev1.ProtocolSCTP: 132}

// KindOf is what policies see of a pod.
func KindOf(p *corev1.Pod) *Kind {
	k := &Kind{Namespace: p.Namespace, Labels: p.Labels}
	add := func(c *corev1.Container) {
		for _, port := range c.Ports {
			if port.Name != "" {
				k.Ports = append(k.Ports, NamedPort{port.Name, Protocols[port.Protocol], uint16(port.ContainerPort)})
			}
		}
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	for i := range p.Spec.Containers {
		add(&p.Spec.Containers[i])
	}
	k.print = k.written()
	return k
}

// written is all of it in one string. None of its parts can have a line's end in it.
func (k *Kind) written() string {
	var s strings.Builder
	s.WriteString(k.Namespace)
	for _, name := range slices.Sorted(maps.Keys(k.Labels)) {
		s.WriteString("\n" + name + "=" + k.Labels[name])
	}
	for _, p := range k.Ports {
		fmt.Fprintf(&s, "\n:%s %d %d", p.Name, p.Protocol, p.Number)
	}
	return s.String()
}

// Same says that policies see no difference.
func (k *Kind) Same(o *Kind) bool { return k.print == o.print }

// numbers are the ports of a name, of a protocol.
func (k *Kind) numbers(protocol byte, name string) (all []uint16) {
	for _, p := range k.Ports {
		if p.Name == name && p.Protocol == protocol {
			all = append(all, p.Number)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (k *Kind) labels() labels.Set { return k.Labels }
