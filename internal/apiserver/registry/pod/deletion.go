package pod

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// CheckGracefulDelete implements rest.RESTGracefulDeleteStrategy. A grace period of zero removes the object at once;
// a longer one leaves that to the agent of the pod's node.
func (strategy) CheckGracefulDelete(_ context.Context, obj runtime.Object, options *metav1.DeleteOptions) bool {
	if options == nil {
		return false
	}
	period := gracePeriod(obj.(*corev1.Pod), options.GracePeriodSeconds)
	options.GracePeriodSeconds = &period
	return true
}

// gracePeriod is the time, in seconds, that a pod is given to end. requested is the caller's wish, nil without one.
func gracePeriod(pod *corev1.Pod, requested *int64) int64 {
	switch {
	case pod.Spec.NodeName == "":
		return 0 // nobody runs it, so nobody would ever confirm its end
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return 0 // nothing is left to be stopped
	}
	var period int64
	if requested != nil {
		period = *requested
	} else if pod.Spec.TerminationGracePeriodSeconds != nil {
		period = *pod.Spec.TerminationGracePeriodSeconds
	}
	if period < 0 {
		return 1 // zero would skip the agent; the shortest period that does not is meant
	}
	return period
}
