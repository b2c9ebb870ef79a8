package controllers_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/test/apitest"
	"monopod.dev/monopod/test/harness"
)

// A service of the type LoadBalancer has the node's address; another one that wants its port says why it has none, and gets it when the first has gone.
func TestLoadBalancers(t *testing.T) {
	a := apitest.Start(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	node, err := a.Client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{})
	must(err)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
	_, err = a.Client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
	must(err)
	a.Control("service-lb")
	services := a.Client.CoreV1().Services("default")
	create := func(name string) {
		t.Helper()
		_, err := services.Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
		must(err)
	}
	has := func(name, address string) {
		t.Helper()
		harness.Eventually(t, name+" is at "+address, func() (bool, string) {
			s, err := services.Get(t.Context(), name, metav1.GetOptions{})
			must(err)
			var at []string
			for _, i := range s.Status.LoadBalancer.Ingress {
				at = append(at, i.IP)
			}
			refused := meta.FindStatusCondition(s.Status.Conditions, corev1.LoadBalancerPortsError)
			return strings.Join(at, " ") == address && (refused == nil) == (address != ""), fmt.Sprint(s.Status)
		})
	}
	create("first")
	has("first", "192.0.2.1")
	create("second")
	has("second", "")
	harness.Eventually(t, "an event says why", func() (bool, string) {
		events, err := a.Client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=second"})
		must(err)
		for _, e := range events.Items {
			if e.Reason == "PortInUse" && strings.Contains(e.Message, "service default/first") {
				return true, ""
			}
		}
		return false, fmt.Sprint(events.Items)
	})
	first, err := services.Get(t.Context(), "first", metav1.GetOptions{})
	must(err)
	first.Spec.Type = corev1.ServiceTypeClusterIP
	_, err = services.Update(t.Context(), first, metav1.UpdateOptions{})
	must(err)
	has("second", "192.0.2.1")
	harness.Eventually(t, "the first has no addresses any more", func() (bool, string) {
		s, err := services.Get(t.Context(), "first", metav1.GetOptions{})
		must(err)
		return len(s.Status.LoadBalancer.Ingress) == 0, fmt.Sprint(s.Status)
	})
}
