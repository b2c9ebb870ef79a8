package controllers_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/controllers/servicecidr"
	"monopod.dev/monopod/test/apitest"
	"monopod.dev/monopod/test/harness"
)

// Services get addresses of a range that was added; it stays, when it is deleted, until the last of them has gone.
func TestServiceRanges(t *testing.T) {
	a := apitest.Start(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ranges, services := a.Client.NetworkingV1().ServiceCIDRs(), a.Client.CoreV1().Services("default")
	create := func(name, address string) (*corev1.Service, error) {
		return services.Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.ServiceSpec{ClusterIP: address, Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
	}
	is := func(name string, status metav1.ConditionStatus, message string) {
		t.Helper()
		harness.Eventually(t, fmt.Sprintf("%s is ready: %s", name, status), func() (bool, string) {
			r, err := ranges.Get(t.Context(), name, metav1.GetOptions{})
			must(err)
			c := meta.FindStatusCondition(r.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
			return c != nil && c.Status == status && strings.Contains(c.Message, message) && len(r.Finalizers) == 1 && r.Finalizers[0] == servicecidr.Finalizer, fmt.Sprint(r)
		})
	}
	a.Control("service-cidr")
	is("kubernetes", metav1.ConditionTrue, "")

	if _, err := create("early", "10.99.0.7"); !apierrors.IsInvalid(err) {
		t.Errorf("an address of no range: %v", err)
	}
	_, err := ranges.Create(t.Context(), &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "more"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.99.0.0/28"}}}, metav1.CreateOptions{})
	must(err)
	is("more", metav1.ConditionTrue, "")
	harness.Eventually(t, "a service gets an address of the new range", func() (bool, string) {
		_, err := create("named", "10.99.0.7")
		return err == nil, fmt.Sprint(err)
	})
	ip, err := a.Client.NetworkingV1().IPAddresses().Get(t.Context(), "10.99.0.7", metav1.GetOptions{})
	must(err)
	if p := ip.Spec.ParentRef; *p != (networkingv1.ParentReference{Resource: "services", Namespace: "default", Name: "named"}) {
		t.Errorf("its IPAddress is of %+v", p)
	}

	must(ranges.Delete(t.Context(), "more", metav1.DeleteOptions{}))
	is("more", metav1.ConditionFalse, "10.99.0.7")
	harness.Eventually(t, "nothing more is given out of a range that is deleted", func() (bool, string) {
		s, err := create("late", "10.99.0.8")
		if err == nil {
			must(services.Delete(t.Context(), "late", metav1.DeleteOptions{}))
		}
		return apierrors.IsInvalid(err), fmt.Sprint(s, err)
	})
	s, err := create("other", "")
	must(err)
	if !netip.MustParsePrefix("10.43.0.0/16").Contains(netip.MustParseAddr(s.Spec.ClusterIP)) {
		t.Errorf("a service that names none has %s", s.Spec.ClusterIP)
	}
	must(services.Delete(t.Context(), "named", metav1.DeleteOptions{}))
	harness.Eventually(t, "the range has gone", func() (bool, string) {
		_, err := ranges.Get(t.Context(), "more", metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}
