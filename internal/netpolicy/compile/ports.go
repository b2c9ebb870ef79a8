package compile

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const maxPort = 65535

// ports are what a rule says of ports: none at all is everything, of every protocol.
type ports struct {
	all    bool
	ranges []span
	named  []name
}

// span are ports of a protocol, both ends included.
type span struct {
	protocol byte
	from, to uint16
}

// name is a port by its name.
type name struct {
	protocol byte
	name     string
}

func (n name) String() string { return fmt.Sprintf("%d %s", n.protocol, n.name) }

// parsePorts reads the ports of a rule.
func parsePorts(list []networkingv1.NetworkPolicyPort) (out ports, err error) {
	out.all = len(list) == 0
	for _, p := range list {
		protocol := Protocols[corev1.ProtocolTCP]
		if p.Protocol != nil {
			var known bool
			if protocol, known = Protocols[*p.Protocol]; !known {
				return ports{}, fmt.Errorf("the protocol %q is not TCP, UDP or SCTP", *p.Protocol)
			}
		}
		switch {
		case p.Port == nil:
			out.ranges = append(out.ranges, span{protocol, 0, maxPort})
		case p.Port.Type == intstr.String:
			out.named = append(out.named, name{protocol, p.Port.StrVal})
		default:
			from, to := p.Port.IntVal, p.Port.IntVal
			if p.EndPort != nil {
				to = *p.EndPort
			}
			if from < 0 || to > maxPort || to < from {
				return ports{}, fmt.Errorf("the ports %d to %d cannot be", from, to)
			}
			out.ranges = append(out.ranges, span{protocol, uint16(from), uint16(to)})
		}
	}
	return out, nil
}

// resolved are the ports that a rule is about where the connection goes to a pod in which the names mean these numbers.
func (p ports) resolved(meaning map[name][]uint16) (out []span) {
	out = slices.Clone(p.ranges)
	for _, n := range p.named {
		for _, number := range meaning[n] {
			out = append(out, span{n.protocol, number, number})
		}
	}
	return out
}

// merged are ports in order, each once.
func merged(all []span) (out []span) {
	slices.SortFunc(all, func(a, b span) int {
		if a.protocol != b.protocol {
			return int(a.protocol) - int(b.protocol)
		}
		return int(a.from) - int(b.from)
	})
	for _, s := range all {
		if n := len(out); n > 0 && out[n-1].protocol == s.protocol && int(s.from) <= int(out[n-1].to)+1 {
			out[n-1].to = max(out[n-1].to, s.to)
			continue
		}
		out = append(out, s)
	}
	return out
}

// written names a list of ports.
func written(all []span) string {
	var s strings.Builder
	for _, p := range all {
		fmt.Fprintf(&s, "%d %d-%d\n", p.protocol, p.from, p.to)
	}
	return s.String()
}
