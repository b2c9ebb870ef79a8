package apiserver_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"monopod.dev/monopod/test/harness"
)

// TestDNSService: the service kube-dns is there when the node serves the DNS, comes back, and goes when it does not; one of others is theirs.
func TestDNSService(t *testing.T) {
	cfg := newConfig(t)
	cfg.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16"), netip.MustParsePrefix("fd00:43::/112")}
	cfg.DNS = []netip.Addr{netip.MustParseAddr("10.43.0.10"), netip.MustParseAddr("fd00:43::a")}
	i := start(t, cfg)
	kube, ctx := i.admin(t), t.Context()
	services := kube.CoreV1().Services("kube-system")
	made, err := services.Watch(ctx, byName(""))
	if err != nil {
		t.Fatal(err)
	}
	defer made.Stop()
	s := eventOf(t, made, watch.Added).(*corev1.Service) // nobody waits for it, so it may come a moment after the server is ready
	if !slices.Equal(s.Spec.ClusterIPs, []string{"10.43.0.10", "fd00:43::a"}) || len(s.Spec.Ports) != 2 || s.Labels["k8s-app"] != "kube-dns" {
		t.Errorf("the service is %+v", s)
	}
	endpoints, err := kube.CoreV1().Endpoints("kube-system").Watch(ctx, byName(""))
	if err != nil {
		t.Fatal(err)
	}
	defer endpoints.Stop()
	if e := eventOf(t, endpoints, watch.Added).(*corev1.Endpoints); len(e.Subsets) != 1 || e.Subsets[0].Addresses[0].IP != "10.43.0.10" || len(e.Subsets[0].Ports) != 2 {
		t.Errorf("its endpoints are %+v", e)
	}
	parts, err := kube.DiscoveryV1().EndpointSlices("kube-system").Watch(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=kube-dns"})
	if err != nil {
		t.Fatal(err)
	}
	defer parts.Stop()
	for range 2 {
		eventOf(t, parts, watch.Added)
	}
	w, err := services.Watch(ctx, byName(s.ResourceVersion))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := services.Delete(ctx, "kube-dns", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if back := eventOf(t, w, watch.Added).(*corev1.Service); back.Spec.ClusterIP != "10.43.0.10" || back.UID == s.UID {
		t.Errorf("it came back as %+v", back)
	}
	i.end(t)

	// The node serves none any more.
	cfg.DNS = nil
	i = start(t, cfg)
	kube = i.admin(t)
	services = kube.CoreV1().Services("kube-system")
	harness.Eventually(t, "the service and its slices go", func() (bool, string) {
		s, err := services.Get(ctx, "kube-dns", metav1.GetOptions{})
		list, lerr := kube.DiscoveryV1().EndpointSlices("kube-system").List(ctx, metav1.ListOptions{})
		return apierrors.IsNotFound(err) && lerr == nil && len(list.Items) == 0, fmt.Sprint(s, err, list, lerr)
	})
	theirs := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "kube-dns"}, Spec: corev1.ServiceSpec{
		ClusterIP: "10.43.0.10", Selector: map[string]string{"app": "coredns"}, Ports: []corev1.ServicePort{{Port: 53}},
	}}
	if _, err := services.Create(ctx, theirs, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	i.end(t)

	// And serves one again, beside somebody's own.
	cfg.DNS = []netip.Addr{netip.MustParseAddr("10.43.0.10")}
	i = start(t, cfg)
	defer i.end(t)
	kube = i.admin(t)
	// Somebody's slice is left alone, and one of the node's own that is left from before goes.
	left := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.43.0.10"}}},
		ObjectMeta: metav1.ObjectMeta{Name: "kube-dns-ipv4", Labels: map[string]string{"app.kubernetes.io/managed-by": "monopod"}}}
	slices := kube.DiscoveryV1().EndpointSlices("kube-system")
	if _, err := slices.Create(ctx, left, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the node's own slice goes", func() (bool, string) {
		_, err := slices.Get(ctx, "kube-dns-ipv4", metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	if s, err := kube.CoreV1().Services("kube-system").Get(ctx, "kube-dns", metav1.GetOptions{}); err != nil || s.Spec.Selector["app"] != "coredns" {
		t.Errorf("theirs is %+v, %v", s, err)
	}
}

// byName are the events of the service and of what has its name, from a version on.
func byName(version string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: "metadata.name=kube-dns", ResourceVersion: version}
}
