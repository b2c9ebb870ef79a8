package ingresses

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestLacks(t *testing.T) {
	classes := []*networkingv1.IngressClass{{ObjectMeta: metav1.ObjectMeta{Name: "web"}}}
	for name, c := range map[string]struct {
		change func(*networkingv1.Ingress)
		want   string
	}{
		"of no class":              {func(*networkingv1.Ingress) {}, NoClass},
		"of a class that is there": {func(i *networkingv1.Ingress) { i.Spec.IngressClassName = ptr.To("web") }, ""},
		"of one that is not":       {func(i *networkingv1.Ingress) { i.Spec.IngressClassName = ptr.To("other") }, ClassNotFound},
		"of a class by annotation": {func(i *networkingv1.Ingress) { i.Annotations = map[string]string{legacyClass: "other"} }, ""},
		"taken all the same": {func(i *networkingv1.Ingress) {
			i.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.1"}}
		}, ""},
		"about to go": {func(i *networkingv1.Ingress) { i.DeletionTimestamp = &metav1.Time{} }, ""},
	} {
		i := &networkingv1.Ingress{}
		c.change(i)
		if got, message := lacks(i, classes); got != c.want || (message == "") != (got == "") {
			t.Errorf("%s: %q %q, want %q", name, got, message, c.want)
		}
	}
}
