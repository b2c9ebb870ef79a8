package volumebinding

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	helpers "k8s.io/component-helpers/storage/volume"

	"monopod.dev/monopod/internal/controllers/storageindex"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// syncClaim does what is to be done about a claim.
func (c *Controller) syncClaim(ctx context.Context, name cache.ObjectName) error {
	claim, ok := c.claims.find(name)
	if !ok {
		c.claims.told.forget(name)
		return nil
	}
	d, err := c.decide(name, claim)
	if err != nil {
		return err
	}
	defer c.release(name, d.Volume)
	if d.Verb != Wait && d.Verb != Announce {
		c.claims.told.forget(name)
	}
	switch d.Verb {
	case None:
		return nil
	case Bind:
		return c.bind(ctx, claim, d.Volume)
	case Lose:
		return c.lose(ctx, claim, d.Event)
	case Classify:
		now := claim.DeepCopy()
		now.Spec.StorageClassName = new(d.Class.Name)
		_, err := c.writeClaim(ctx, now)
		return err // the claim comes here again, with its class
	case Announce:
		if now, changed := Announced(claim, d.Class.Provisioner); changed {
			if claim, err = c.writeClaim(ctx, now); err != nil {
				return err
			}
		}
	case Wait:
		if claim, err = c.writeClaimStatus(ctx, claim, corev1.ClaimPending, nil); err != nil {
			return err
		}
	}
	if d.Event != nil && c.claims.told.due(name, claim.UID, *d.Event) {
		c.config.Events.Event(claim, d.Event.Type, d.Event.Reason, d.Event.Message)
	}
	c.claims.queue.AddAfter(name, pace)
	return nil
}

// decide decides about a claim. A volume that was chosen for it is promised to it until release.
func (c *Controller) decide(name cache.ObjectName, claim *corev1.PersistentVolumeClaim) (ForClaim, error) {
	classes, err := c.classes.List(labels.Everything())
	if err != nil {
		return ForClaim{}, fmt.Errorf("list the storage classes: %w", err)
	}
	s := Seen{Claim: claim, Classes: classes, Waiting: c.waitingFor(name)}
	if volume := claim.Spec.VolumeName; volume != "" {
		if v, ok := c.volumes.find(cache.ObjectName{Name: volume}); ok {
			s.Volumes = append(s.Volumes, v)
		}
		return Claim(s)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// One that was given to the claim a moment ago may be seen among those that are free, or moves from there to those that have a claim.
	ofClass, held := storageindex.FreeOf(helpers.GetPersistentVolumeClaimClass(claim)), storageindex.HeldFor(name.Namespace, name.Name)
	for _, v := range append(c.volumes.in(storageindex.ByTaker, ofClass), c.volumes.in(storageindex.ByTaker, held)...) {
		if to, ok := c.promised[v.Name]; !ok || to == name {
			s.Volumes = append(s.Volumes, v)
		}
	}
	d, err := Claim(s)
	if err != nil {
		return ForClaim{}, fmt.Errorf("choose a volume: %w", err)
	}
	if d.Volume != nil {
		c.promised[d.Volume.Name] = name
	}
	return d, nil
}

func (c *Controller) release(name cache.ObjectName, v *corev1.PersistentVolume) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v != nil && c.promised[v.Name] == name {
		delete(c.promised, v.Name)
	}
}

// waitingFor are the names of the pods that use a claim and have no node.
func (c *Controller) waitingFor(name cache.ObjectName) (pods []string) {
	for _, pod := range storageindex.PodsOf(c.pods, name.AsNamespacedName()) {
		if pod.Spec.NodeName == "" {
			pods = append(pods, pod.Name)
		}
	}
	return pods
}

// bind completes the binding of a claim and a volume, from wherever it is.
func (c *Controller) bind(ctx context.Context, claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) error {
	bound, changed, err := VolumeFor(v, claim)
	if err != nil {
		return fmt.Errorf("point volume %s at the claim: %w", v.Name, err)
	}
	if changed {
		if v, err = c.writeVolume(ctx, bound); err != nil {
			return err
		}
	}
	if v, err = c.writePhase(ctx, v, corev1.VolumeBound, ""); err != nil {
		return err
	}
	if named, changed := ClaimFor(claim, v); changed {
		if claim, err = c.writeClaim(ctx, named); err != nil {
			return err
		}
	}
	_, err = c.writeClaimStatus(ctx, claim, corev1.ClaimBound, v)
	return err
}

// lose tells of a claim that its volume is gone, unless the volume is one that no cache shows yet.
func (c *Controller) lose(ctx context.Context, claim *corev1.PersistentVolumeClaim, event *Event) error {
	if claim.Status.Phase == corev1.ClaimLost {
		return nil
	}
	fresh := Seen{Claim: claim}
	if name := claim.Spec.VolumeName; name != "" {
		switch v, err := c.config.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{}); {
		case err == nil:
			fresh.Volumes = append(fresh.Volumes, v)
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("read volume %s: %w", name, err)
		}
	}
	switch d, err := Claim(fresh); {
	case err != nil:
		return err
	case d.Verb == Bind:
		return c.bind(ctx, claim, d.Volume)
	case d.Verb == Lose:
		event = d.Event
	}
	claim, err := c.writeClaimStatus(ctx, claim, corev1.ClaimLost, nil)
	if err != nil {
		return err
	}
	c.config.Events.Event(claim, event.Type, event.Reason, event.Message)
	return nil
}

// writeClaim writes a claim, and returns it as it is then.
func (c *Controller) writeClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	if err := failpoint.Hit("controllers/volumebinding/claim"); err != nil {
		return nil, err
	}
	now, err := c.config.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, claim, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("write the claim: %w", err)
	}
	c.claims.written.note(now)
	return now, nil
}

// writeClaimStatus writes the status of a claim for a phase, unless it has that already, and returns the claim as it is then.
func (c *Controller) writeClaimStatus(
	ctx context.Context, claim *corev1.PersistentVolumeClaim, phase corev1.PersistentVolumeClaimPhase, v *corev1.PersistentVolume,
) (*corev1.PersistentVolumeClaim, error) {
	now, changed := StatusOf(claim, phase, v)
	if !changed {
		return claim, nil
	}
	if err := failpoint.Hit("controllers/volumebinding/claim-status"); err != nil {
		return nil, err
	}
	now, err := c.config.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, now, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("write the status of the claim: %w", err)
	}
	c.claims.written.note(now)
	return now, nil
}
