package endpoints

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Endpoints hold a thousand addresses, those of ready pods first.
func TestOverCapacity(t *testing.T) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}}}}
	var pods []*corev1.Pod
	for n := range 1200 {
		ready := corev1.ConditionFalse
		if n >= 300 {
			ready = corev1.ConditionTrue
		}
		pods = append(pods, &corev1.Pod{Status: corev1.PodStatus{
			PodIP: "x", PodIPs: []corev1.PodIP{{IP: fmt.Sprintf("10.61.%d.%d", n/250, n%250+1)}}, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}},
		}})
	}
	subsets, over := subsetsOf(service, pods)
	if !over || len(subsets) != 1 || len(subsets[0].Addresses) != 900 || len(subsets[0].NotReadyAddresses) != 100 {
		t.Errorf("over %t, %d subsets", over, len(subsets))
	}
	if subsets, over = subsetsOf(service, pods[300:310]); over || len(subsets[0].Addresses) != 10 {
		t.Errorf("ten: over %t, %v", over, subsets)
	}
}
