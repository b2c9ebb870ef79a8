package storage

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/storage/plan"
)

// grow has a volume hold as much as its claim requests, while pods have it. The claim tells of it as those of resizers outside of Kubernetes do: it is Resizing
// first, and has the new size last.
func (p *Provisioner) grow(ctx context.Context, s plan.Seen) error {
	err := p.enlarge(ctx, s)
	if err != nil && ctx.Err() == nil {
		p.tell(s.Volume.Name, s.Claim, "VolumeResizeFailed", fmt.Sprintf("resize volume %q failed: %v", s.Volume.Name, err))
	}
	return err
}

func (p *Provisioner) enlarge(ctx context.Context, s plan.Seen) error {
	wants := plan.Requested(s.Claim)
	claims := p.client.CoreV1().PersistentVolumeClaims(s.Claim.Namespace)
	claim := s.Claim
	if now, changed := plan.Resizing(claim, metav1.Now()); changed {
		var err error
		if claim, err = claims.UpdateStatus(ctx, now, metav1.UpdateOptions{}); err != nil {
			return unlessGone(err)
		}
		p.events.Eventf(claim, corev1.EventTypeNormal, "Resizing", "External resizer is resizing volume %s", s.Volume.Name)
	}
	if err := p.raise(ctx, s, wants); err != nil {
		return err
	}
	if is := s.Volume.Spec.Capacity[corev1.ResourceStorage]; is.Cmp(wants) < 0 {
		v := s.Volume.DeepCopy()
		v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: wants}
		if err := failpoint.Around("storage/grow/volume", func() error {
			_, err := p.client.CoreV1().PersistentVolumes().Update(ctx, v, metav1.UpdateOptions{})
			return err
		}); err != nil {
			return err
		}
	}
	claim, err := claims.UpdateStatus(ctx, plan.Resized(claim, wants), metav1.UpdateOptions{})
	if err != nil {
		return unlessGone(err)
	}
	p.forget(s.Volume.Name)
	p.events.Eventf(claim, corev1.EventTypeNormal, "VolumeResizeSuccessful", "Resize volume succeeded")
	return nil
}

// raise has the volume hold what is wanted. The record tells of no growth that has failed, or was cut off, for longer than until the next one: what the volume holds
// for certain is the capacity that its PersistentVolume has, so a claim that wants less again gets that.
func (p *Provisioner) raise(ctx context.Context, s plan.Seen, wants resource.Quantity) error {
	old, r := *s.Record, *s.Record
	old.Size = min(old.Size, plan.Bytes(s.Volume.Spec.Capacity[corev1.ResourceStorage]))
	if r.Size = max(old.Size, plan.Bytes(wants)); r != *s.Record {
		if err := p.fits(r); err != nil {
			return err
		}
		if err := failpoint.Around("storage/grow/record", func() error { return p.store.Put(r) }); err != nil {
			return err
		}
	}
	h, err := p.holders.Of(r.Hold)
	if err != nil {
		return err
	}
	v := p.of(r)
	if v.Owed, err = p.owed(""); err != nil {
		return err
	}
	err = failpoint.Around("storage/grow/data", func() error { return h.Resize(ctx, v) })
	if err != nil && r != old {
		err = errors.Join(err, p.store.Put(old))
	}
	return err
}
