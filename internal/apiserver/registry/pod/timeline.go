package pod

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/util/dryrun"

	"monopod.dev/monopod/internal/kit/podstarts"
)

// noteCreate makes the store note when the request for a new pod came, and when the pod was stored, by a POST or by an apply that finds none.
func noteCreate(r *podstarts.Recorder) genericregistry.BeginCreateFunc {
	return func(ctx context.Context, obj runtime.Object, options *metav1.CreateOptions) (genericregistry.FinishFunc, error) {
		begun := time.Now()
		return func(_ context.Context, success bool) {
			pod, ok := obj.(*corev1.Pod)
			if !ok || !success || dryrun.IsDryRun(options.DryRun) {
				return
			}
			uid := string(pod.UID)
			r.Open(uid, pod.Namespace, pod.Name)
			r.Span(uid, podstarts.Post, "", received(ctx, begun), begun)
			r.Span(uid, podstarts.Store, "", begun, time.Now())
		}, nil
	}
}

// noteBind notes how long it took to give a pod its node.
func noteBind(ctx context.Context, r *podstarts.Recorder, uid types.UID, namespace, name string, begun time.Time) {
	r.Open(string(uid), namespace, name)
	r.Span(string(uid), podstarts.Bind, "", received(ctx, begun), time.Now())
}

// received is when the request came, or what is known instead.
func received(ctx context.Context, known time.Time) time.Time {
	if at, ok := genericrequest.ReceivedTimestampFrom(ctx); ok {
		return at
	}
	return known
}
