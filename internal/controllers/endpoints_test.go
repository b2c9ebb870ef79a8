package controllers_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/apiserver"
	"monopod.dev/monopod/internal/controllers/endpoints"
)

// served is a real API server with a controller.
type served struct {
	*testing.T
	kube kubernetes.Interface
}

func newServed(t *testing.T) served {
	t.Helper()
	dir, err := os.MkdirTemp("", "mp-ep-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s, err := apiserver.New(t.Context(), apiserver.Config{
		DataDir: filepath.Join(dir, "d"), RunDir: filepath.Join(dir, "r"), BindAddress: "127.0.0.1", EtcdTick: 10 * time.Millisecond, NodeName: "n1",
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16"), netip.MustParsePrefix("fd00:43::/112")},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	serving, controlled := make(chan error, 1), make(chan error, 1)
	go func() { serving <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case <-time.After(time.Minute):
		t.Fatal("the API server is not ready after a minute")
	}
	config := s.AdminConfig()
	config.QPS = -1
	kube := kubernetes.NewForConfigOrDie(config)
	factory := informers.NewSharedInformerFactory(kube, 0)
	c, err := endpoints.New(endpoints.Config{Kube: kube, Informers: factory, Events: record.NewFakeRecorder(1000), Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	controller, stop := context.WithCancel(context.Background())
	go func() { controlled <- c.Run(controller) }()
	t.Cleanup(func() {
		stop()
		if err := <-controlled; err != nil {
			t.Error(err)
		}
		factory.Shutdown()
		cancel()
		if err := <-serving; err != nil {
			t.Error(err)
		}
	})
	if _, err := kube.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return served{t, kube}
}

func (w served) service(name string, change func(*corev1.Service)) *corev1.Service {
	w.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": "a"}}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("http")}},
	}}
	if change != nil {
		change(s)
	}
	s, err := w.kube.CoreV1().Services("default").Create(w.Context(), s, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// pod makes a pod that has addresses, and is ready or not.
func (w served) pod(name, app string, ready bool, ips ...string) *corev1.Pod {
	w.Helper()
	p, err := w.kube.CoreV1().Pods("default").Create(w.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{NodeName: "n1", Hostname: name, Containers: []corev1.Container{{Name: "c", Image: "i",
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return w.status(p, ready, ips...)
}

func (w served) status(p *corev1.Pod, ready bool, ips ...string) *corev1.Pod {
	w.Helper()
	p.Status.Phase, p.Status.PodIPs = corev1.PodRunning, nil
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	is := corev1.ConditionFalse
	if ready {
		is = corev1.ConditionTrue
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: is}}
	p, err := w.kube.CoreV1().Pods("default").UpdateStatus(w.Context(), p, metav1.UpdateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return p
}

// slices are the slices of a service, in short.
func (w served) slices(service string) string {
	w.Helper()
	list, err := w.kube.DiscoveryV1().EndpointSlices("default").List(w.Context(), metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=" + service})
	if err != nil {
		w.Fatal(err)
	}
	var all []string
	for _, s := range list.Items {
		var in []string
		for _, e := range s.Endpoints {
			state := ""
			if e.Conditions.Ready == nil || !*e.Conditions.Ready {
				state = "!"
			}
			if t := e.Conditions.Terminating; t != nil && *t {
				state += "x"
			}
			in = append(in, e.Addresses[0]+state)
		}
		slices.Sort(in)
		var ports []string
		for _, p := range s.Ports {
			ports = append(ports, fmt.Sprint(*p.Port))
		}
		by, _, _ := strings.Cut(s.Labels["endpointslice.kubernetes.io/managed-by"], "-")
		all = append(all, fmt.Sprintf("%s %s [%s] %s", by, s.AddressType, strings.Join(ports, ","), strings.Join(in, ",")))
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// endpoints are the Endpoints of a service, in short.
func (w served) endpoints(service string) string {
	e, err := w.kube.CoreV1().Endpoints("default").Get(w.Context(), service, metav1.GetOptions{})
	if err != nil {
		return "none"
	}
	var all []string
	for _, s := range e.Subsets {
		for _, a := range s.Addresses {
			all = append(all, a.IP)
		}
		for _, a := range s.NotReadyAddresses {
			all = append(all, a.IP+"!")
		}
		for _, p := range s.Ports {
			all = append(all, fmt.Sprint(":", p.Port))
		}
	}
	return strings.Join(all, ",")
}

// until waits until a service's slices, and its Endpoints, are as wanted.
func (w served) until(service, slices, endpoints string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 2*time.Minute)
	defer cancel()
	a, err := w.kube.DiscoveryV1().EndpointSlices("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	defer a.Stop()
	b, err := w.kube.CoreV1().Endpoints("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	defer b.Stop()
	for {
		s, e := w.slices(service), w.endpoints(service)
		if s == slices && e == endpoints {
			return
		}
		select {
		case <-ctx.Done():
			w.Fatalf("%s: slices %q, Endpoints %q; want %q and %q", service, s, e, slices, endpoints)
		case <-a.ResultChan():
		case <-b.ResultChan():
		}
	}
}

func TestEndpoints(t *testing.T) {
	w := newServed(t)
	w.service("web", nil)
	w.until("web", "endpointslice IPv4 [] ", "")
	a := w.pod("a", "web", true, "10.61.0.10", "fd00:61::10")
	w.pod("b", "web", false, "10.61.0.11")
	w.pod("other", "other", true, "10.61.0.12")
	w.until("web", "endpointslice IPv4 [8080] 10.61.0.10,10.61.0.11!", "10.61.0.10,10.61.0.11!,:8080")

	// A pod that ends is still served by, and not ready; one that has ended is gone.
	w.status(a, false, "10.61.0.10", "fd00:61::10")
	w.until("web", "endpointslice IPv4 [8080] 10.61.0.10!,10.61.0.11!", "10.61.0.10!,10.61.0.11!,:8080")
	if err := w.kube.CoreV1().Pods("default").Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until("web", "endpointslice IPv4 [8080] 10.61.0.10!x,10.61.0.11!", "10.61.0.11!,:8080")
	zero := int64(0)
	if err := w.kube.CoreV1().Pods("default").Delete(t.Context(), "a", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	w.until("web", "endpointslice IPv4 [8080] 10.61.0.11!", "10.61.0.11!,:8080")

	// Not ready, but told all the same; in both families.
	dual := corev1.IPFamilyPolicyPreferDualStack
	w.service("early", func(s *corev1.Service) {
		s.Spec.Selector, s.Spec.PublishNotReadyAddresses, s.Spec.IPFamilyPolicy = map[string]string{"app": "dual"}, true, &dual
	})
	w.pod("d", "dual", false, "10.61.0.20", "fd00:61::20")
	w.until("early", "endpointslice IPv4 [8080] 10.61.0.20; endpointslice IPv6 [8080] fd00:61::20", "10.61.0.20,:8080")

	// What somebody changes is put back.
	if err := w.kube.DiscoveryV1().EndpointSlices("default").DeleteCollection(t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=web"}); err != nil {
		t.Fatal(err)
	}
	if err := w.kube.CoreV1().Endpoints("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until("web", "endpointslice IPv4 [8080] 10.61.0.11!", "10.61.0.11!,:8080")
	if err := w.kube.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.untilGone("web")
}

// untilGone waits for the end of Endpoints. Slices go by their owner, whose collector is another controller.
func (w served) untilGone(name string) {
	w.Helper()
	watched, err := w.kube.CoreV1().Endpoints("default").Watch(w.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		w.Fatal(err)
	}
	defer watched.Stop()
	if w.endpoints(name) == "none" {
		return
	}
	deadline := time.After(2 * time.Minute)
	for {
		select {
		case e := <-watched.ResultChan():
			if e.Type == watch.Deleted {
				return
			}
		case <-deadline:
			w.Fatalf("the Endpoints %s stay", name)
		}
	}
}

// A slice has at most 100 endpoints, and one that changes rewrites no other.
func TestManyEndpoints(t *testing.T) {
	w := newServed(t)
	w.service("many", nil)
	for n := range 150 {
		w.pod(fmt.Sprint("p-", n), "many", true, fmt.Sprintf("10.61.1.%d", n+1))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	watched, err := w.kube.DiscoveryV1().EndpointSlices("default").Watch(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=many"})
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	var sizes []int
	for total := 0; total != 150; {
		list, err := w.kube.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=many"})
		if err != nil {
			t.Fatal(err)
		}
		sizes, total = nil, 0
		for _, s := range list.Items {
			sizes = append(sizes, len(s.Endpoints))
			total += len(s.Endpoints)
		}
		if total != 150 {
			<-watched.ResultChan()
		}
	}
	slices.Sort(sizes)
	if !slices.Equal(sizes, []int{50, 100}) {
		t.Errorf("slices of %v endpoints", sizes)
	}
}

// What is written as the Endpoints of a service without a selector is shown as slices.
func TestMirroredEndpoints(t *testing.T) {
	w := newServed(t)
	w.service("db", func(s *corev1.Service) { s.Spec.Selector, s.Spec.Ports[0].TargetPort = nil, intstr.FromInt32(80) })
	written := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Subsets: []corev1.EndpointSubset{{
		Addresses: []corev1.EndpointAddress{{IP: "192.0.2.1"}, {IP: "2001:db8::1"}}, NotReadyAddresses: []corev1.EndpointAddress{{IP: "192.0.2.2"}},
		Ports: []corev1.EndpointPort{{Port: 5432}},
	}}}
	written, err := w.kube.CoreV1().Endpoints("default").Create(t.Context(), written, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.until("db", "endpointslicemirroring IPv4 [5432] 192.0.2.1,192.0.2.2!; endpointslicemirroring IPv6 [5432] 2001:db8::1", "192.0.2.1,2001:db8::1,192.0.2.2!,:5432")
	written.Subsets[0].Addresses = written.Subsets[0].Addresses[:1]
	if written, err = w.kube.CoreV1().Endpoints("default").Update(t.Context(), written, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until("db", "endpointslicemirroring IPv4 [5432] 192.0.2.1,192.0.2.2!", "192.0.2.1,192.0.2.2!,:5432")
	written.Labels = map[string]string{"endpointslice.kubernetes.io/skip-mirror": "true"}
	if _, err = w.kube.CoreV1().Endpoints("default").Update(t.Context(), written, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until("db", "", "192.0.2.1,192.0.2.2!,:5432")
}

// Endpoints of no service are their maker's, also before there is one; they go with a service that goes. Those that a controller has left go at once.
func TestEndpointsWithoutAService(t *testing.T) {
	w := newServed(t)
	create := func(name string, labels map[string]string) *corev1.Endpoints {
		t.Helper()
		made, err := w.kube.CoreV1().Endpoints("default").Create(t.Context(), &corev1.Endpoints{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
			Subsets:    []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "192.0.2.1"}}, Ports: []corev1.EndpointPort{{Port: 80}}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	own := create("own", nil)
	create("left", map[string]string{"endpoints.kubernetes.io/managed-by": "endpoint-controller"})
	w.untilGone("left") // it was looked at later than the other one
	w.service("own", func(s *corev1.Service) { s.Spec.Selector, s.Spec.Ports[0].TargetPort = nil, intstr.FromInt32(80) })
	w.until("own", "endpointslicemirroring IPv4 [80] 192.0.2.1", "192.0.2.1,:80")
	is, err := w.kube.CoreV1().Endpoints("default").Get(t.Context(), "own", metav1.GetOptions{})
	if err != nil || is.UID != own.UID {
		t.Errorf("%v, %v in place of %v", is.UID, err, own.UID)
	}
	if err := w.kube.CoreV1().Services("default").Delete(t.Context(), "own", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.untilGone("own")
}
