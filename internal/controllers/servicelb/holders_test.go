package servicelb

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

// withPorts is a pod with a port of the node, and one of its own.
func withPorts(uid string, hostNetwork bool, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "pod-" + uid, UID: types.UID(uid)}, Status: corev1.PodStatus{Phase: phase},
		Spec: corev1.PodSpec{HostNetwork: hostNetwork, Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: 80, ContainerPort: 8080}, {ContainerPort: 90, Protocol: corev1.ProtocolUDP}}}}}}
}

func TestHostPorts(t *testing.T) {
	for _, c := range []struct {
		pod  *corev1.Pod
		want string
	}{
		{withPorts("a", false, corev1.PodRunning), "[port 80/TCP]"},
		{withPorts("a", true, corev1.PodPending), "[port 80/TCP port 90/UDP]"},
		{withPorts("a", true, corev1.PodSucceeded), "[]"},
	} {
		if got := fmt.Sprint(hostPorts(c.pod)); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

// TestHolders: who has a port of the nodes is known by what pods are told of one by one.
func TestHolders(t *testing.T) {
	c := newController(t, 0)
	web, dns := port{corev1.ProtocolTCP, 80}, port{corev1.ProtocolUDP, 90}
	holds := func(what, first, second string) {
		t.Helper()
		if a, b := c.holders.who(web), c.holders.who(dns); a != first || b != second {
			t.Errorf("%s: the ports have %q and %q, want %q and %q", what, a, b, first, second)
		}
	}
	a, b := withPorts("a", false, corev1.PodRunning), withPorts("b", true, corev1.PodRunning)
	c.pod(nil, a)
	holds("a pod comes", "pod x/pod-a", "")
	c.pod(nil, b)
	holds("another one with the same port", "pod x/pod-a", "pod x/pod-b")
	c.pod(a, withPorts("a", false, corev1.PodFailed))
	holds("the first one ends", "pod x/pod-b", "pod x/pod-b")
	again := withPorts("c", false, corev1.PodRunning)
	again.Name = "pod-b"
	c.pod(b, again) // by one event: the other one was not seen to go
	holds("another one has the second one's name", "pod x/pod-b", "")
	c.pod(cache.DeletedFinalStateUnknown{Obj: again}, nil)
	holds("it goes", "", "")
	if len(c.holders.by)+len(c.holders.of) > 0 {
		t.Errorf("left are %v, %v", c.holders.by, c.holders.of)
	}
}

// newController is one whose informers have so many services that have their addresses, and as many pods; nothing runs, and nothing can be written.
func newController(t testing.TB, n int) *Controller {
	t.Helper()
	factory := informers.NewSharedInformerFactory(nil, 0)
	core := factory.Core().V1()
	c, err := New(Config{
		Services: core.Services(), Nodes: core.Nodes(), Pods: core.Pods(), Events: record.NewFakeRecorder(1), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.queue.ShutDown)
	add := func(to cache.Indexer, obj any) {
		if err := to.Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	add(core.Nodes().Informer().GetIndexer(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}}})
	mode := corev1.LoadBalancerIPModeVIP
	for i := range n {
		s := lb(fmt.Sprint("s", i), i, int32(1000+i))
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1", IPMode: &mode}}
		add(core.Services().Informer().GetIndexer(), s)
		p := withPorts(fmt.Sprint("p", i), false, corev1.PodRunning)
		p.Spec.Containers[0].Ports[0].HostPort = int32(10000 + i)
		add(core.Pods().Informer().GetIndexer(), p)
		c.pod(nil, p)
	}
	return c
}

// BenchmarkLook is a look at services that are as they should be, among as many pods with ports of the node.
func BenchmarkLook(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newController(b, n)
			b.ReportAllocs()
			for b.Loop() {
				if err := c.look(context.Background(), all); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
