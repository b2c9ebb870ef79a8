package view

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func serviceObject(namespace, name, ip string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ServiceSpec{
		ClusterIP: ip, Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}, {Port: 81}},
	}}
	if ip != "" && ip != corev1.ClusterIPNone {
		s.Spec.ClusterIPs = []string{ip}
	}
	return s
}

func sliceObject(namespace, name, service string, ips ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}}, AddressType: discoveryv1.AddressTypeIPv4}
	for _, ip := range ips {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip}})
	}
	return s
}

// shownAs is what is known of a service.
func (v *View) shownAs(namespace, name string) string {
	s := v.Service(namespace, name)
	if s == nil {
		return "nothing"
	}
	out := fmt.Sprint(s.External, s.Addresses)
	for _, e := range s.Endpoints {
		out += " " + e.Address.String()
	}
	return out
}

func TestView(t *testing.T) {
	v := New()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	is := func(what, want string) {
		t.Helper()
		if got := v.shownAs("ns", "a"); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	names := func(ip, want string) {
		t.Helper()
		if got := fmt.Sprint(v.NamesOf(netip.MustParseAddr(ip))); got != want {
			t.Errorf("%s is %s, want %s", ip, got, want)
		}
	}
	// Slices may come before their service.
	must(v.sliceEvent(sliceObject("ns", "a-2", "a", "10.0.0.2"), false))
	is("only a slice", "nothing")
	if v.HasNamespace("ns") || len(v.NamesOf(netip.MustParseAddr("10.0.0.2"))) > 0 {
		t.Error("a slice makes names by itself")
	}
	must(v.serviceEvent(serviceObject("ns", "a", corev1.ClusterIPNone), false))
	must(v.sliceEvent(sliceObject("ns", "a-1", "a", "10.0.0.1", "10.0.0.2"), false))
	is("two slices", "[] 10.0.0.1 10.0.0.2 10.0.0.2")
	names("10.0.0.2", "[10-0-0-2.a.ns.svc]")
	must(v.sliceEvent(sliceObject("ns", "a-1", "b", "10.0.0.1"), false)) // another's from now on
	is("one of them another's", "[] 10.0.0.2")
	names("10.0.0.1", "[]")
	must(v.sliceEvent(sliceObject("ns", "a-2", "a", "10.0.0.2"), true))
	is("no slices", "[]")
	must(v.serviceEvent(serviceObject("ns", "a", "10.43.0.5"), false))
	is("an address", "[10.43.0.5]")
	names("10.43.0.5", "[a.ns.svc]")
	must(v.serviceEvent(serviceObject("ns", "a", ""), false))
	is("none yet", "nothing")
	names("10.43.0.5", "[]")
	if v.HasNamespace("ns") || v.Services() != 0 {
		t.Error("a namespace without names has some")
	}
	must(v.serviceEvent(serviceObject("ns", "a", "10.43.0.6"), false))
	// A list after a watch that was cut says what there is, and what is no more.
	must(v.serviceList([]any{serviceObject("ns", "c", "10.43.0.7")}))
	must(v.sliceList(nil))
	is("not in the list", "nothing")
	names("10.43.0.6", "[]")
	must(v.serviceList(nil))
	if len(v.services) != 0 || len(v.shown) != 0 || len(v.owners) != 0 || len(v.endpoints) != 0 || len(v.slices) != 0 {
		t.Errorf("something is left of nothing: %+v", v)
	}
}

// What a large cluster takes.
func TestMemory(t *testing.T) {
	const services, headless, each = 1000, 50, 100
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	v := New()
	for i := range services {
		if err := v.serviceEvent(serviceObject("default", fmt.Sprintf("service-%d", i), fmt.Sprintf("10.43.%d.%d", i/250, i%250)), false); err != nil {
			t.Fatal(err)
		}
	}
	for i := range headless {
		name := fmt.Sprintf("set-%d", i)
		s := sliceObject("default", name, name)
		for j := range each {
			hostname := fmt.Sprintf("%s-%d", name, j)
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.61.%d.%d", i, j)}, Hostname: &hostname})
		}
		if err := v.serviceEvent(serviceObject("default", name, corev1.ClusterIPNone), false); err != nil {
			t.Fatal(err)
		}
		if err := v.sliceEvent(s, false); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if v.Services() != services+headless {
		t.Errorf("%d services", v.Services())
	}
	t.Logf("%d services and %d endpoints take %d KiB", services+headless, headless*each, (int64(after.HeapAlloc)-int64(before.HeapAlloc))/1024)
	runtime.KeepAlive(v)
}
