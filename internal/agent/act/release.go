package act

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/host/tree"
)

// release gives back what the pod holds; a final one also what was kept for its logs.
func (p *Pod) release(ctx context.Context, pod *v1.Pod, a plan.Action) error {
	p.cfg.Objects.Release(p.uid)
	p.cfg.Tokens.Forget(types.UID(p.uid))
	p.cfg.Ledger.Release(types.UID(p.uid))
	errs := []error{p.cfg.Cgroups.UpdateQoS()}
	if p.cfg.Devices != nil {
		errs = append(errs, p.cfg.Devices.Release(ctx, p.uid))
	}
	if a.Final {
		errs = append(errs, p.cfg.Cgroups.Remove(p.uid))
		errs = append(errs, p.cfg.LogLinks.RemovePod(pod.Namespace, pod.Name, p.logDir(pod)))
		// The logs go first: by the pod's directory the next start knows of a pod that is gone, if we end in between.
		if err := tree.Remove(ctx, p.logDir(pod)); err != nil {
			return errors.Join(append(errs, err)...)
		}
		errs = append(errs, p.cfg.Volumes.Remove(ctx, p.uid))
	} else {
		errs = append(errs, p.cfg.Volumes.Release(ctx, p.uid))
	}
	return errors.Join(errs...)
}

// deleteObject ends the object, after its last status was written.
func (p *Pod) deleteObject(ctx context.Context, pod *v1.Pod) error {
	if err := p.cfg.Status.Flush(ctx, pod.UID); err != nil {
		return err
	}
	zero := int64(0)
	err := p.cfg.Kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		// Gone already, or another pod has its name.
		return nil
	}
	return err
}
