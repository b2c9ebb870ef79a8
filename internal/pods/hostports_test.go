package pods

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestHostPortConflicts(t *testing.T) {
	port := func(p v1.ContainerPort) *v1.PodSpec {
		return &v1.PodSpec{Containers: []v1.Container{{}, {Ports: []v1.ContainerPort{{ContainerPort: 80}, p}}}}
	}
	tcp := v1.ContainerPort{HostPort: 8080, Protocol: v1.ProtocolTCP}
	at := func(ip string) v1.ContainerPort { p := tcp; p.HostIP = ip; return p }
	for name, c := range map[string]struct {
		a, b v1.ContainerPort
		want bool
	}{
		"the same":                 {tcp, tcp, true},
		"no protocol is TCP":       {v1.ContainerPort{HostPort: 8080}, tcp, true},
		"another port":             {tcp, v1.ContainerPort{HostPort: 8081, Protocol: v1.ProtocolTCP}, false},
		"another protocol":         {tcp, v1.ContainerPort{HostPort: 8080, Protocol: v1.ProtocolUDP}, false},
		"no port of the host":      {v1.ContainerPort{ContainerPort: 8080}, tcp, false},
		"two addresses":            {at("10.0.0.1"), at("10.0.0.2"), false},
		"one address":              {at("10.0.0.1"), at("10.0.0.1"), true},
		"an address and all":       {at("10.0.0.1"), tcp, true},
		"an address and 0.0.0.0":   {at("0.0.0.0"), at("10.0.0.1"), true},
		"an address and ::":        {at("10.0.0.1"), at("::"), true},
		"all in two ways of words": {at("0.0.0.0"), tcp, true},
	} {
		a, b := HostPorts(port(c.a)), HostPorts(port(c.b))
		if Conflict(a, b) != c.want || Conflict(b, a) != c.want {
			t.Errorf("%s: %v and %v, want a conflict: %t", name, a, b, c.want)
		}
	}
}
