package apiserver_test

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// TestDNSService: the service kube-dns is there when the node serves the DNS, comes back, and goes when it does not; one of others is theirs.
func TestDNSService(t *testing.T) {
	cfg := newConfig(t)
	cfg.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16"), netip.MustParsePrefix("fd00:43::/112")}
	cfg.DNS = []netip.Addr{netip.MustParseAddr("10.43.0.10"), netip.MustParseAddr("fd00:43::a")}
	i := start(t, cfg)
	kube, ctx := i.admin(t), t.Context()
	services := kube.CoreV1().Services("kube-system")
	s, err := services.Get(ctx, "kube-dns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.Spec.ClusterIPs, []string{"10.43.0.10", "fd00:43::a"}) || len(s.Spec.Ports) != 2 || s.Labels["k8s-app"] != "kube-dns" {
		t.Errorf("the service is %+v", s)
	}
	e, err := kube.CoreV1().Endpoints("kube-system").Get(ctx, "kube-dns", metav1.GetOptions{})
	if err != nil || len(e.Subsets) != 1 || e.Subsets[0].Addresses[0].IP != "10.43.0.10" || len(e.Subsets[0].Ports) != 2 {
		t.Errorf("its endpoints are %+v, %v", e, err)
	}
	list, err := kube.DiscoveryV1().EndpointSlices("kube-system").List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=kube-dns"})
	if err != nil || len(list.Items) != 2 {
		t.Errorf("its slices are %+v, %v", list, err)
	}
	w, err := services.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=kube-dns", ResourceVersion: s.ResourceVersion})
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
	if s, err := services.Get(ctx, "kube-dns", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it stays: %+v, %v", s, err)
	}
	if list, err := kube.DiscoveryV1().EndpointSlices("kube-system").List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		t.Errorf("its slices stay: %+v, %v", list, err)
	}
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
	if s, err := i.admin(t).CoreV1().Services("kube-system").Get(ctx, "kube-dns", metav1.GetOptions{}); err != nil || s.Spec.Selector["app"] != "coredns" {
		t.Errorf("theirs is %+v, %v", s, err)
	}
}
