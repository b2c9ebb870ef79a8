package volumebinding

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/kit/failpoint"
)

// syncVolume does what is to be done about a volume.
func (c *Controller) syncVolume(ctx context.Context, name cache.ObjectName) error {
	v, ok := c.volumes.find(name)
	if !ok {
		c.volumes.told.forget(name)
		return nil
	}
	claim, err := c.claimOf(ctx, v)
	if err != nil {
		return err
	}
	d := Volume(v, claim)
	if d.Unbind {
		if v, err = c.writeVolume(ctx, Unbound(v)); err != nil {
			return err
		}
	}
	if d.Phase != "" {
		if v, err = c.writePhase(ctx, v, d.Phase, d.Message); err != nil {
			return err
		}
	}
	if d.Claim {
		c.claims.queue.Add(cache.MetaObjectToName(claim))
	}
	if d.Event == nil {
		c.volumes.told.forget(name)
		return nil
	}
	if c.volumes.told.due(name, v.UID, *d.Event) {
		c.config.Events.Event(v, d.Event.Type, d.Event.Reason, d.Event.Message)
		if d.ClaimEvent != nil {
			c.config.Events.Event(claim, d.ClaimEvent.Type, d.ClaimEvent.Reason, d.ClaimEvent.Message)
		}
	}
	c.volumes.queue.AddAfter(name, pace)
	return nil
}

// claimOf is the claim that a volume points at with its UID; nil: there is none, in the store either, or it was given up before.
func (c *Controller) claimOf(ctx context.Context, v *corev1.PersistentVolume) (*corev1.PersistentVolumeClaim, error) {
	ref := v.Spec.ClaimRef
	if ref == nil || ref.UID == "" {
		return nil, nil
	}
	if claim, ok := c.claims.find(cache.NewObjectName(ref.Namespace, ref.Name)); ok && claim.UID == ref.UID {
		return claim, nil
	}
	if p := v.Status.Phase; p == corev1.VolumeReleased || p == corev1.VolumeFailed {
		return nil, nil
	}
	claim, err := c.config.Client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read claim %s/%s of the volume: %w", ref.Namespace, ref.Name, err)
	}
	return claim, nil
}

// writeVolume writes a volume, and returns it as it is then.
func (c *Controller) writeVolume(ctx context.Context, v *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	if err := failpoint.Hit("controllers/volumebinding/volume"); err != nil {
		return nil, err
	}
	now, err := c.config.Client.CoreV1().PersistentVolumes().Update(ctx, v, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("write volume %s: %w", v.Name, err)
	}
	c.volumes.written.note(now)
	return now, nil
}

// writePhase has a volume enter a phase, unless it is in that already, and returns the volume as it is then.
func (c *Controller) writePhase(ctx context.Context, v *corev1.PersistentVolume, phase corev1.PersistentVolumePhase, message string) (*corev1.PersistentVolume, error) {
	if v.Status.Phase == phase {
		return v, nil
	}
	if err := failpoint.Hit("controllers/volumebinding/volume-status"); err != nil {
		return nil, err
	}
	now := v.DeepCopy()
	now.Status.Phase, now.Status.Message = phase, message
	now, err := c.config.Client.CoreV1().PersistentVolumes().UpdateStatus(ctx, now, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("write the status of volume %s: %w", v.Name, err)
	}
	c.volumes.written.note(now)
	return now, nil
}
