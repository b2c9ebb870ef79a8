package binder

import (
	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods"
)

// ownPorts are those of nodes: the agent's, and more that the node may have; nil: none are known.
func ownPorts(more func(node string) []pods.OwnPort) func(*corev1.Node) []pods.OwnPort {
	return func(node *corev1.Node) (own []pods.OwnPort) {
		if port := node.Status.DaemonEndpoints.KubeletEndpoint.Port; port != 0 {
			own = append(own, pods.OwnPort{Protocol: corev1.ProtocolTCP, Port: port, Of: "the agent's"})
		}
		if more != nil {
			own = append(own, more(node.Name)...)
		}
		return own
	}
}

// portsAreFree is the judge of the ports of the host that a pod wants.
func portsAreFree(known *survey) verdict {
	wanted := pods.HostPorts(&known.pod.Spec)
	if len(wanted) == 0 {
		return nil
	}
	return func(at place) []lack {
		if own := known.in.own; own != nil {
			if port, asked := pods.Owned(&known.pod.Spec, wanted, own(at.node)); asked {
				return lacking("node(s) served at a requested host port themselves (" + port.String() + ")")
			}
		}
		for other := range at.holdings().ports {
			if pods.Conflict(wanted, pods.HostPorts(&other.Spec)) {
				return lacking("node(s) didn't have free ports for the requested pod ports")
			}
		}
		return nil
	}
}
