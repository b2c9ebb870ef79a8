package apitest

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/pods"
)

// Agent plays the agent of all pods until the test ends: a pod runs, and is ready, once ready says so of it, which it is asked whenever the pod changes.
// Pods that were not given a node the API server deletes at once; of the others it is the agent who lets them go.
func (a *API) Agent(ready func(*corev1.Pod) bool) {
	a.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactory(a.Client, 0)
	changed := func(obj any) { a.play(ctx, obj.(*corev1.Pod), ready) }
	if _, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: func(_, obj any) { changed(obj) },
	}); err != nil {
		a.Fatal(err)
	}
	factory.StartWithContext(ctx)
	a.Cleanup(sync.OnceFunc(func() {
		cancel()
		factory.Shutdown()
	}))
}

// play does for a pod what its agent would do next. An API server that has no time for it is asked again.
func (a *API) play(ctx context.Context, pod *corev1.Pod, ready func(*corev1.Pod) bool) {
	client := a.Client.CoreV1().Pods(pod.Namespace)
	var do func() error
	switch {
	case pod.DeletionTimestamp != nil && pod.Spec.NodeName != "":
		do = func() error {
			return client.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
		}
	case pod.DeletionTimestamp == nil && !pods.IsTrue(&pod.Status, corev1.PodReady) && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded && ready(pod):
		told := pod.DeepCopy()
		told.Status.Phase = corev1.PodRunning
		pods.SetCondition(&told.Status, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}, time.Now())
		do = func() error {
			_, err := client.UpdateStatus(ctx, told, metav1.UpdateOptions{})
			return err
		}
	default:
		return
	}
	for end := time.Now().Add(Timeout); ; time.Sleep(100 * time.Millisecond) {
		err := do()
		// What has changed meanwhile is told of again.
		if err == nil || ctx.Err() != nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return
		}
		if time.Now().After(end) {
			a.Errorf("the agent of pod %s: %v", pod.Name, err)
			return
		}
	}
}
