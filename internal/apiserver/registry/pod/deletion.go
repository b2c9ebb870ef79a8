package pod

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/pods"
)

// requestedGraceKey is the context's key of the grace period that a client has asked for, a *int64 in seconds.
//
// The library decides about a deletion more than once: on what the watch cache holds, and again when the store turns out
// to be newer. Each decision is written into the options, where the next one would take it for the client's wish: a pod
// that the cache shows without its node yet would be removed at once, behind the back of the agent that has just
// started it. So the wish is kept apart from the options.
type requestedGraceKey struct{}

func keepRequestedGrace(ctx context.Context, options *metav1.DeleteOptions) context.Context {
	if options == nil {
		return ctx
	}
	return context.WithValue(ctx, requestedGraceKey{}, options.GracePeriodSeconds)
}

// Delete implements rest.GracefulDeleter.
func (r *REST) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc,
	options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	return r.Store.Delete(keepRequestedGrace(ctx, options), name, validate, options)
}

// DeleteCollection implements rest.CollectionDeleter.
func (r *REST) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions,
	list *internalversion.ListOptions) (runtime.Object, error) {
	return r.Store.DeleteCollection(keepRequestedGrace(ctx, options), validate, options, list)
}

// CheckGracefulDelete implements rest.RESTGracefulDeleteStrategy. A grace period of zero removes the object at once;
// a longer one leaves that to the agent of the pod's node.
func (strategy) CheckGracefulDelete(ctx context.Context, obj runtime.Object, options *metav1.DeleteOptions) bool {
	if options == nil {
		return false
	}
	requested, kept := ctx.Value(requestedGraceKey{}).(*int64)
	if !kept {
		requested = options.GracePeriodSeconds
	}
	period := gracePeriod(obj.(*corev1.Pod), requested)
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
	// The library adds it to now, and so does whoever is told of it.
	return int64(pods.Seconds(period) / time.Second)
}
