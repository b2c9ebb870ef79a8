package act

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"monopod.dev/monopod/internal/agent/plan"
)

// Releases gives back what pods have.
type Releases struct {
	Places *Places
	// Devices gives back those of a pod, by its UID; nil: there are none.
	Devices func(ctx context.Context, podUID string) error
	// Held are those who hold something in memory for a pod, until they are told that it has ended. They don't wait.
	Held []func(uid types.UID)
}

// release gives back what the pod holds; a final one also what was kept for its logs.
func (r *Releases) release(ctx context.Context, pod *v1.Pod, a plan.Action) error {
	for _, forget := range r.Held {
		forget(pod.UID)
	}
	var errs []error
	if r.Devices != nil {
		errs = append(errs, r.Devices(ctx, string(pod.UID)))
	}
	if a.Final {
		errs = append(errs, r.Places.remove(ctx, pod))
	} else {
		errs = append(errs, r.Places.release(ctx, pod))
	}
	return errors.Join(errs...)
}

// Deletions ends the objects of pods.
type Deletions struct {
	Kube kubernetes.Interface
	// Flush returns when the last status of a pod has been written, or can't be because the pod is gone.
	Flush func(ctx context.Context, uid types.UID) error
}

// delete ends the object, after its last status was written.
func (d *Deletions) delete(ctx context.Context, pod *v1.Pod, _ plan.Action) error {
	if err := d.Flush(ctx, pod.UID); err != nil {
		return err
	}
	zero := int64(0)
	err := d.Kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		// Gone already, or another pod has its name.
		return nil
	}
	return err
}
