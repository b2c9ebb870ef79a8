package node

import (
	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent"
	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/network"
)

// ownPorts are those of the host at which the node serves: no pod gets one. The agent's port is that of whichever kubelet is the node's. Which port 0
// becomes nobody knows before.
func (p *process) ownPorts() (own []agent.OwnPort) {
	add := func(port *int32, of string) {
		if port != nil && *port > 0 {
			own = append(own, agent.OwnPort{Protocol: corev1.ProtocolTCP, Port: *port, Of: of})
		}
	}
	if p.withAPI {
		add(p.Config.APIServer.Port, "the API server's")
	}
	add(p.Config.Agent.Port, "the agent's")
	for _, s := range p.Config.Network.OwnPorts {
		if at, err := config.ParseOwnPort(s); err == nil { // which Validate has seen to
			own = append(own, agent.OwnPort{Protocol: corev1.Protocol(at.Protocol), Port: int32(at.Port), Of: "the node's (network.ownPorts)"})
		}
	}
	return own
}

// ownPortsOf are those of this node, and none of others, of which only the agent's port is known, by their status.
func (p *process) ownPortsOf(node string) []agent.OwnPort {
	if node != p.Config.NodeName || !p.withAPI {
		return nil
	}
	return p.ownPorts()
}

// bridgePorts are these ports as the network knows them.
func bridgePorts(own []agent.OwnPort) (all []network.OwnPort) {
	for _, p := range own {
		all = append(all, network.OwnPort{Protocol: string(p.Protocol), Port: uint16(p.Port), Of: p.Of})
	}
	return all
}
