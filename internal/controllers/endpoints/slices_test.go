package endpoints

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/endpointslice/util"
)

// slice is one of a service, with ports of the given numbers in their order.
func slice(name, service, by string, ports ...int32) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, Labels: map[string]string{
			discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: by,
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, p := range ports {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: new(string), Port: &p})
	}
	return s
}

// newController is one whose informers have so many services, each with a slice and a pod; nothing runs, and nothing can be written.
func newController(t testing.TB, n int) *Controller {
	t.Helper()
	factory := informers.NewSharedInformerFactory(nil, 0)
	c, err := New(Config{Informers: factory, Events: record.NewFakeRecorder(1), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.queue.ShutDown)
	services := factory.Core().V1().Services().Informer().GetIndexer()
	for i := range n {
		name := fmt.Sprint("web-", i)
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": name}}}
		c.selectors.Set(service)
		c.pods.Set(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, Labels: map[string]string{"app": name, "tier": "web"}}})
		if err := errors.Join(services.Add(service), c.slices.Add(slice(name+"-1", name, sliceController, 80))); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func TestSlicesOf(t *testing.T) {
	c := newController(t, 3)
	elsewhere := slice("web-1-1", "web-1", sliceController)
	elsewhere.Namespace = "m"
	for _, s := range []*discoveryv1.EndpointSlice{slice("web-1-2", "web-1", sliceController), slice("web-1-3", "web-1", mirrorController), slice("web-1-4", "", sliceController), elsewhere} {
		if err := c.slices.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	for by, want := range map[string]map[string]bool{sliceController: {"web-1-1": true, "web-1-2": true}, mirrorController: {"web-1-3": true}, "somebody": {}} {
		all, err := c.slicesOf("n", "web-1", by)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, s := range all {
			got[s.Name] = true
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("by %s: %v, want %v", by, got, want)
		}
	}
}

// TestPool: a slice of a shape is taken once, by whoever has its ports in any order, and what is asked for stays as it was.
func TestPool(t *testing.T) {
	a, b, c := slice("a", "s", mirrorController, 443, 80), slice("b", "s", mirrorController, 80, 443), slice("c", "s", mirrorController, 80)
	before := a.DeepCopy()
	p := poolOf([]*discoveryv1.EndpointSlice{a, b, c})
	six := c.DeepCopy()
	six.AddressType = discoveryv1.AddressTypeIPv6
	for _, want := range []struct {
		like *discoveryv1.EndpointSlice
		name string
	}{{b, "a"}, {a, "b"}, {b, ""}, {six, ""}} {
		got := ""
		if s := p.take(shapeOf(want.like)); s != nil {
			got = s.Name
		}
		if got != want.name {
			t.Errorf("taken is %q, want %q", got, want.name)
		}
	}
	if left := p.left(); len(left) != 1 || left[0] != c {
		t.Errorf("left are %v, want c", left)
	}
	if !reflect.DeepEqual(a, before) {
		t.Errorf("a slice of the cache has become %v", a)
	}
}

// BenchmarkSlicesOf finds the slices of one of so many services.
func BenchmarkSlicesOf(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newController(b, n)
			b.ReportAllocs()
			for b.Loop() {
				if all, err := c.slicesOf("n", fmt.Sprint("web-", n/2), sliceController); err != nil || len(all) != 1 {
					b.Fatal(all, err)
				}
			}
		})
	}
}

// BenchmarkOfPod finds the services of one of so many pods, as it becomes ready.
func BenchmarkOfPod(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newController(b, n)
			pod := c.pods.Selected("n", &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("web-", n/2)}})[0]
			ready := pod.DeepCopy()
			ready.ResourceVersion = "2" // the same version would be a look for nothing
			ready.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			b.ReportAllocs()
			for b.Loop() {
				c.ofPod(pod, ready)
				name, ok := c.queue.Get()
				if !ok || name.Name != pod.Name {
					b.Fatal(name)
				}
				c.queue.Done(name)
			}
		})
	}
}

// BenchmarkMirrors gives the subsets of somebody's Endpoints their slices: so many, each with ports of its own.
func BenchmarkMirrors(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			written := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "web"}}
			for i := range n {
				written.Subsets = append(written.Subsets, corev1.EndpointSubset{
					Addresses: []corev1.EndpointAddress{{IP: "192.0.2.1"}}, Ports: []corev1.EndpointPort{{Port: int32(1 + i), Protocol: corev1.ProtocolTCP}},
				})
			}
			have := mirrors(written)
			for b.Loop() {
				p := poolOf(have)
				for _, s := range mirrors(written) {
					if p.take(shapeOf(s)) == nil {
						b.Fatal("a slice is missing")
					}
				}
			}
		})
	}
}

// BenchmarkPodsOf finds the pods behind one of so many services, each of which has one.
func BenchmarkPodsOf(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newController(b, n)
			service, err := c.services.Services("n").Get(fmt.Sprint("web-", n/2))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if all := c.pods.Selected("n", selectorOf(service)); len(all) != 1 {
					b.Fatal(all)
				}
			}
		})
	}
}

// TestOfPod: a pod's change is a matter of the services that the change is about, whatever comes and goes, as it is for upstream's library when it looks at all of them.
func TestOfPod(t *testing.T) {
	for seed := range uint64(200) {
		chance := rand.New(rand.NewPCG(seed, 6))
		factory := informers.NewSharedInformerFactory(nil, 0)
		c := newController(t, 0)
		all := factory.Core().V1().Services()
		few := func() map[string]string {
			if chance.IntN(5) == 0 {
				return nil
			}
			m := map[string]string{}
			for range chance.IntN(3) {
				m[fmt.Sprint("k", chance.IntN(2))] = fmt.Sprint(chance.IntN(2))
			}
			return m
		}
		for i := range 20 {
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("n", i%2), Name: fmt.Sprint("web-", i)}, Spec: corev1.ServiceSpec{Selector: few()}}
			c.selectors.Set(service)
			if err := all.Informer().GetIndexer().Add(service); err != nil {
				t.Fatal(err)
			}
		}
		version := 0
		pod := func() any {
			if chance.IntN(4) == 0 {
				return nil
			}
			version++
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n0", Name: "p", ResourceVersion: fmt.Sprint(version), Labels: few()}}
			if chance.IntN(2) == 0 {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			}
			return p
		}
		before, after := pod(), pod()
		if before == nil && after == nil {
			continue
		}
		keys, err := util.GetServicesToUpdate(all.Lister(), util.GetPodUpdateProjectionKey(before, after))
		if err != nil {
			t.Fatal(err)
		}
		c.ofPod(before, after)
		c.queue.Add(cache.NewObjectName("", "last"))
		got := map[string]bool{}
		for {
			name, _ := c.queue.Get()
			if c.queue.Done(name); name.Name == "last" {
				break
			}
			got[name.String()] = true
		}
		want := map[string]bool{}
		for key := range keys {
			want[key] = true
		}
		if !maps.Equal(got, want) {
			t.Errorf("seed %d: from %v to %v: looked at are %v, want %v", seed, before, after, got, want)
		}
	}
}
