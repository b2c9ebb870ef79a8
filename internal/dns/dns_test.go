package dns_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/dns"
	"monopod.dev/monopod/test/apitest"
)

func TestMain(m *testing.M) {
	// The API server's library leaves one for each request that has waited for its cache, until a timer ends it.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2"))
}

// rig is a served cluster.
type rig struct {
	*apitest.API
	server *dns.Server
	names  *net.Resolver
}

func start(t testing.TB, upstreams ...netip.AddrPort) *rig {
	t.Helper()
	api := apitest.Start(t)
	if len(upstreams) == 0 {
		upstreams = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")} // nobody's
	}
	s, err := dns.New(context.Background(), dns.Config{
		Domain: "cluster.local", Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Services: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")}, Upstreams: upstreams,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, api.Config) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the DNS ended with %v", err)
		}
	})
	select {
	case <-s.Ready():
	case <-time.After(apitest.Timeout):
		t.Fatal("the DNS does not become ready")
	}
	return &rig{API: api, server: s, names: &net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, s.Addr().String())
	}}}
}

func (r *rig) service(name string, change func(*corev1.Service)) *corev1.Service {
	r.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}
	change(s)
	made, err := r.Client.CoreV1().Services("default").Create(r.Context(), s, metav1.CreateOptions{})
	if err != nil {
		r.Fatal(err)
	}
	return made
}

// await waits until a look-up says what is wanted, and tells how long that took.
func (r *rig) await(what, want string, look func() string) time.Duration {
	r.Helper()
	begin, got := time.Now(), ""
	for time.Since(begin) < apitest.Timeout {
		if got = look(); got == want {
			return time.Since(begin)
		}
		time.Sleep(100 * time.Microsecond) //nolint:forbidigo // what another process would see is only seen by asking
	}
	r.Fatalf("%s: %s, want %s", what, got, want)
	return 0
}

// hosts are the addresses of a name.
func (r *rig) hosts(name string) string {
	all, err := r.names.LookupHost(r.Context(), name)
	return list(all, err)
}

func list(all []string, err error) string {
	var missing *net.DNSError
	if errors.As(err, &missing) && missing.IsNotFound {
		return "none"
	}
	if err != nil {
		return err.Error()
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestCluster(t *testing.T) {
	r := start(t)
	web := r.service("web", func(*corev1.Service) {})
	r.await("a service", web.Spec.ClusterIP, func() string { return r.hosts("web.default.svc.cluster.local.") })
	if _, all, err := r.names.LookupSRV(t.Context(), "http", "tcp", "web.default.svc.cluster.local."); err != nil || len(all) != 1 || all[0].Port != 80 || all[0].Target != "web.default.svc.cluster.local." {
		t.Errorf("SRV: %v, %v", all, err)
	}
	if all, err := r.names.LookupAddr(t.Context(), web.Spec.ClusterIP); list(all, err) != "web.default.svc.cluster.local." {
		t.Errorf("PTR: %v, %v", all, err)
	}
	if all, err := r.names.LookupTXT(t.Context(), "dns-version.cluster.local."); list(all, err) != "1.1.0" {
		t.Errorf("version: %v, %v", all, err)
	}
	// That of the API.
	if got := r.hosts("kubernetes.default.svc.cluster.local."); got != "10.43.0.1" {
		t.Errorf("kubernetes: %s", got)
	}

	set := r.service("set", func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone })
	yes, no, name, port := true, false, "set-0", int32(8080)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "set-x", Labels: map[string]string{discoveryv1.LabelServiceName: set.Name}}, AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: &set.Spec.Ports[0].Name, Port: &port}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.61.0.5"}, Hostname: &name, Conditions: discoveryv1.EndpointConditions{Ready: &yes}},
			{Addresses: []string{"10.61.0.6"}, Conditions: discoveryv1.EndpointConditions{Ready: &no}},
		},
	}
	slices := r.Client.DiscoveryV1().EndpointSlices("default")
	made, err := slices.Create(t.Context(), slice, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.await("a headless service", "10.61.0.5", func() string { return r.hosts("set.default.svc.cluster.local.") })
	if got := r.hosts("set-0.set.default.svc.cluster.local."); got != "10.61.0.5" {
		t.Errorf("an endpoint: %s", got)
	}
	if all, err := r.names.LookupAddr(t.Context(), "10.61.0.5"); list(all, err) != "set-0.set.default.svc.cluster.local." {
		t.Errorf("PTR of an endpoint: %v, %v", all, err)
	}
	// Those that are not ready, when the service says so.
	set.Spec.PublishNotReadyAddresses = true
	if _, err := r.Client.CoreV1().Services("default").Update(t.Context(), set, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.await("with those that are not ready", "10.61.0.5 10.61.0.6", func() string { return r.hosts("set.default.svc.cluster.local.") })
	made.Endpoints = made.Endpoints[1:]
	if made, err = slices.Update(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.await("one has gone", "10.61.0.6", func() string { return r.hosts("set.default.svc.cluster.local.") })
	if err := slices.Delete(t.Context(), made.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.await("all have gone", "none", func() string { return r.hosts("set.default.svc.cluster.local.") })

	r.service("here", func(s *corev1.Service) {
		s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "web.default.svc.cluster.local"}
	})
	r.await("an alias", web.Spec.ClusterIP, func() string { return r.hosts("here.default.svc.cluster.local.") })
	if err := r.Client.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.await("the service has gone", "none", func() string { return r.hosts("web.default.svc.cluster.local.") })

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if pod, err = r.Client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod.Status.PodIP, pod.Status.PodIPs = "10.61.0.9", []corev1.PodIP{{IP: "10.61.0.9"}}
	if _, err = r.Client.CoreV1().Pods("default").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.await("a pod", "10.61.0.9", func() string { return r.hosts("10-61-0-9.default.pod.cluster.local.") })
	for _, other := range []string{"10-61-0-8.default.pod.cluster.local.", "10-61-0-9.kube-system.pod.cluster.local."} {
		if got := r.hosts(other); got != "none" {
			t.Errorf("%s: %s", other, got)
		}
	}
}

// How soon a changed service is answered, from the reply of the API server on.
func TestChangesAreSeenAtOnce(t *testing.T) {
	r := start(t)
	var took []time.Duration
	for i := range 50 {
		s := r.service(fmt.Sprintf("s%d", i), func(*corev1.Service) {})
		took = append(took, r.await(s.Name, s.Spec.ClusterIP, func() string { return r.hosts(s.Name + ".default.svc.cluster.local.") }))
	}
	slices.Sort(took)
	t.Logf("after a service was made it was answered within %v (median), %v (most)", took[25], took[49])
}
