package servicelb

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func lb(name string, age int, ports ...int32) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(int64(10000-age), 0))},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}}}
	for _, p := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Protocol: corev1.ProtocolTCP, Port: p})
	}
	return s
}

func node(name string, isReady bool, addresses ...string) *corev1.Node {
	status := corev1.ConditionFalse
	if isReady {
		status = corev1.ConditionTrue
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}}}
	for _, a := range addresses {
		kind, ip, _ := strings.Cut(a, "=")
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeAddressType(kind), Address: ip})
	}
	return n
}

// It is pure.
func TestDecide(t *testing.T) {
	has := func(s *corev1.Service) *corev1.Service {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
		return s
	}
	dual := lb("web", 1, 80)
	dual.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	excluded := node("b", true, "InternalIP=192.0.2.2")
	excluded.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: ""}
	one := node("a", true, "InternalIP=192.0.2.1", "InternalIP=2001:db8::1", "Hostname=a")
	for name, c := range map[string]struct {
		services []*corev1.Service
		nodes    []*corev1.Node
		taken    map[port]string
		want     string
	}{
		"one":                        {[]*corev1.Service{lb("web", 1, 80)}, []*corev1.Node{one}, nil, "web [192.0.2.1]"},
		"both families":              {[]*corev1.Service{dual}, []*corev1.Node{one}, nil, "web [2001:db8::1 192.0.2.1]"},
		"an external address":        {[]*corev1.Service{lb("web", 1, 80)}, []*corev1.Node{node("a", true, "InternalIP=10.0.0.1", "ExternalIP=192.0.2.9")}, nil, "web [192.0.2.9]"},
		"nobody reaches loopback":    {[]*corev1.Service{lb("web", 1, 80)}, []*corev1.Node{node("a", true, "InternalIP=127.0.0.1")}, nil, "web []"},
		"two nodes, one is excluded": {[]*corev1.Service{lb("web", 1, 80)}, []*corev1.Node{excluded, one}, nil, "web [192.0.2.1]"},
		"one is not ready":           {[]*corev1.Service{lb("web", 1, 80)}, []*corev1.Node{one, node("c", false, "InternalIP=192.0.2.3")}, nil, "web [192.0.2.1]"},
		"none is ready":              {[]*corev1.Service{lb("web", 1, 80)}, []*corev1.Node{node("c", false, "InternalIP=192.0.2.3")}, nil, "web [192.0.2.3]"},
		"the elder has the port":     {[]*corev1.Service{lb("young", 1, 443, 80), lb("old", 2, 80)}, []*corev1.Node{one}, nil, "old [192.0.2.1], young: port 80/TCP of the nodes is in use: by service default/old"},
		"who has it keeps it":        {[]*corev1.Service{has(lb("young", 1, 80)), lb("old", 2, 80)}, []*corev1.Node{one}, nil, "old: port 80/TCP of the nodes is in use: by service default/young, young [192.0.2.1]"},
		"somebody else has it":       {[]*corev1.Service{lb("web", 1, 80)}, []*corev1.Node{one}, map[port]string{{corev1.ProtocolTCP, 80}: "nginx (process 7)"}, "web: port 80/TCP of the nodes is in use: by nginx (process 7)"},
		"somebody came later":        {[]*corev1.Service{has(lb("web", 1, 80))}, []*corev1.Node{one}, map[port]string{{corev1.ProtocolTCP, 80}: "nginx"}, "web [192.0.2.1]"},
		"another protocol":           {[]*corev1.Service{lb("web", 1, 80)}, []*corev1.Node{one}, map[port]string{{corev1.ProtocolUDP, 80}: "nginx"}, "web [192.0.2.1]"},
	} {
		var told []string
		for s, d := range decide(c.services, c.nodes, func(p port) string { return c.taken[p] }) {
			if d.refused != "" {
				told = append(told, s.Name+": "+d.refused)
			} else {
				told = append(told, fmt.Sprint(s.Name, " ", d.addresses))
			}
		}
		slices.Sort(told)
		if got := strings.Join(told, ", "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// It is pure.
func TestHostPorts(t *testing.T) {
	pod := func(hostNetwork bool, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "y"}, Status: corev1.PodStatus{Phase: phase},
			Spec: corev1.PodSpec{HostNetwork: hostNetwork, Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: 80, ContainerPort: 8080}, {ContainerPort: 90, Protocol: corev1.ProtocolUDP}}}}}}
	}
	for _, c := range []struct {
		pod  *corev1.Pod
		want string
	}{
		{pod(false, corev1.PodRunning), "map[port 80/TCP:pod x/y]"},
		{pod(true, corev1.PodPending), "map[port 80/TCP:pod x/y port 90/UDP:pod x/y]"},
		{pod(true, corev1.PodSucceeded), "map[]"},
	} {
		if got := fmt.Sprint(hostPorts([]*corev1.Pod{c.pod})); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}
