package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	helpers "k8s.io/component-helpers/storage/volume"

	"monopod.dev/monopod/internal/kit/binarysize"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/storage/hold"
	"monopod.dev/monopod/internal/storage/plan"
)

// act does what was decided.
func (p *Provisioner) act(ctx context.Context, name string, s plan.Seen, d plan.Decision) error {
	switch d.Verb {
	case plan.Make:
		if err := p.provision(ctx, s, d); err != nil {
			return err
		}
		return p.succeeded(ctx, s.Claim)
	case plan.Confirm:
		if err := p.attach(ctx, *s.Record); err != nil {
			return err
		}
		return p.ready(whose(s))
	case plan.Refuse:
		p.tell(name, s.Claim, "ProvisioningFailed", failed(s, d.Why))
		return p.failed(ctx, s.Claim, failed(s, d.Why))
	case plan.Reselect:
		return p.reselect(ctx, s)
	case plan.Grow:
		return p.grow(ctx, s)
	case plan.Remove:
		return p.remove(ctx, name, s)
	case plan.Release:
		p.log.InfoContext(ctx, "a volume is deleted, and its data stay", "volume", name, "directory", p.store.Path(name))
		return p.letGo(ctx, name)
	case plan.Undo:
		return p.undo(ctx, name)
	case plan.Abandon:
		return p.abandon(ctx, name, s)
	case plan.Lost:
		return p.lost(ctx, name, s)
	case plan.Stray:
		if p.news(name, "stray") {
			p.log.WarnContext(ctx, "a directory belongs to no PersistentVolume; it stays", "directory", p.store.Path(name), "claim", s.Record.Claim.String())
		}
	}
	return nil
}

// whose is the record of a volume that some claim has, which may have had no UID before.
func whose(s plan.Seen) plan.Record {
	r := *s.Record
	switch {
	case r.Claim.UID != "":
	case s.Claim != nil:
		r.Claim.UID = s.Claim.UID
	case s.Volume != nil && s.Volume.Spec.ClaimRef != nil:
		r.Claim.UID = s.Volume.Spec.ClaimRef.UID
	}
	return r
}

// failed is what provisioners say of a claim that gets no volume.
func failed(s plan.Seen, why string) string {
	return fmt.Sprintf("failed to provision volume with StorageClass %q: %s", s.Class.Name, why)
}

// provision makes what is missing of a volume, in the order of the package's first promise.
func (p *Provisioner) provision(ctx context.Context, s plan.Seen, d plan.Decision) error {
	err := p.make(ctx, s, d)
	if err != nil && ctx.Err() == nil {
		why := failed(s, err.Error())
		p.tell(d.New.Name, s.Claim, "ProvisioningFailed", why)
		if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown { // the API server's errors are none of the claim, and pass
			if told := p.failed(ctx, s.Claim, why); told != nil && !apierrors.IsConflict(told) {
				err = errors.Join(err, told)
			}
		}
	}
	return err
}

func (p *Provisioner) make(ctx context.Context, s plan.Seen, d plan.Decision) error {
	r := d.New
	if s.Record != nil {
		r = *s.Record // which was begun
		r.Size = max(r.Size, d.New.Size)
	} else {
		var err error
		if r, err = p.begun(ctx, d); err != nil {
			return err
		}
		p.events.Eventf(s.Claim, corev1.EventTypeNormal, "Provisioning", "External provisioner is provisioning volume for claim %q", r.Claim)
	}
	if s.Record == nil || *s.Record != r {
		if err := failpoint.Around("storage/record", func() error { return p.store.Put(r) }); err != nil {
			return err
		}
	}
	if r.Phase == plan.Creating {
		h, err := p.holders.Of(r.Hold)
		if err != nil {
			return err
		}
		v := p.of(r)
		if v.Owed, err = p.owed(""); err != nil {
			return err
		}
		if err := failpoint.Around("storage/data", func() error { return h.Make(ctx, v) }); err != nil {
			return err
		}
	} else if s.Missing {
		return fmt.Errorf("%s is not there, and is not made anew", p.store.Data(r.Name))
	}
	if err := failpoint.Around("storage/volume", func() error { return p.publish(ctx, r, s) }); err != nil {
		return err
	}
	if r.Phase == plan.Ready {
		return nil
	}
	if err := p.ready(r); err != nil {
		return err
	}
	p.forget(r.Name)
	p.events.Eventf(s.Claim, corev1.EventTypeNormal, "ProvisioningSucceeded", "Successfully provisioned volume %s", r.Name)
	if r.Hold == plan.Nothing {
		p.events.Eventf(s.Claim, corev1.EventTypeNormal, "SizeNotHeld", "Nothing keeps volume %s to its %s: %s", r.Name, binarysize.Text(r.Size), p.holders.Why(d.Isolation))
	}
	return nil
}

// begun is the record to begin with of a volume, with what holds its size.
func (p *base) begun(ctx context.Context, d plan.Decision) (plan.Record, error) {
	r := d.New
	if err := errors.Join(p.fits(r), p.mounted(ctx)); err != nil {
		return r, err
	}
	var err error
	if r.Hold, err = p.holders.Choose(d.Isolation, r.Block); err != nil {
		return r, err
	}
	r.Size = max(r.Size, p.holders.Least(r.Hold, r.Block))
	if r.Hold == plan.Project {
		r.QuotaID = p.store.NewQuotaID(p.holders.Free)
	}
	return r, nil
}

// fits refuses a volume that the disk could never hold. All volumes together may be more than it has: a size is a limit, not a reservation.
func (p *base) fits(r plan.Record) error {
	_, total, err := p.holders.Room()
	if err == nil && r.Size > total {
		err = fmt.Errorf("the claim requests %s, and the file system of %s has %s in all", binarysize.Text(r.Size), p.store.Dir(), binarysize.Text(total))
	}
	return err
}

// mounted refuses to make volumes while the disk may not be there on which others of this node are: what was made in their mount point would be hidden by it. It is
// there if anything is of any of them.
func (p *base) mounted(ctx context.Context) error {
	missing := func(v *corev1.PersistentVolume) bool {
		return v != nil && v.DeletionTimestamp == nil && plan.Ours(v, p.config.NodeName) && v.Spec.Local.Path == p.store.Data(v.Name)
	}
	var lost *corev1.PersistentVolume
	for _, obj := range p.volumes.List() {
		v, ok := obj.(*corev1.PersistentVolume)
		if !ok || !missing(v) {
			continue
		}
		there, err := p.store.OnDisk(v.Name)
		if err != nil {
			return err
		}
		if _, known := p.store.Get(v.Name); !known {
			p.queue.Add(v.Name) // its disk may have come
		}
		if there {
			return nil
		}
		lost = v
	}
	if lost == nil {
		return nil
	}
	v, err := stored{p.client}.volume(ctx, lost.Name) // what is seen may be late
	if err == nil && missing(v) {
		err = fmt.Errorf("%s has nothing of the PersistentVolume %s, nor of any other: mount its disk there, or delete the claims if their data are lost", p.store.Dir(), v.Name)
	}
	return err
}

// publish makes the PersistentVolume. One that is there already is taken, if it is the one.
func (p *base) publish(ctx context.Context, r plan.Record, s plan.Seen) error {
	capacity := plan.Requested(s.Claim)
	if plan.Bytes(capacity) != r.Size {
		capacity = *resource.NewQuantity(r.Size, resource.BinarySI)
	}
	v := plan.Volume(&r, p.store.Dir(), p.config.NodeName, s.Claim, s.Class, capacity)
	_, err := p.client.CoreV1().PersistentVolumes().Create(ctx, v, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	there, err := p.client.CoreV1().PersistentVolumes().Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if there.Spec.Local == nil || there.Spec.Local.Path != v.Spec.Local.Path || plan.Host(there) != p.config.NodeName {
		return fmt.Errorf("there is a PersistentVolume %s already, which is not the one of %s", r.Name, v.Spec.Local.Path)
	}
	return nil
}

func (p *base) ready(r plan.Record) error {
	r.Phase = plan.Ready
	return failpoint.Around("storage/ready", func() error { return p.store.Put(r) })
}

// reselect has the claim's pod get a node anew: the one that was selected is not there.
func (p *Provisioner) reselect(ctx context.Context, s plan.Seen) error {
	p.log.InfoContext(ctx, "the node of a claim is gone; its pod is to get another one", "claim", s.Claim.Namespace+"/"+s.Claim.Name, "node", s.Claim.Annotations[helpers.AnnSelectedNode])
	now := s.Claim.DeepCopy()
	delete(now.Annotations, helpers.AnnSelectedNode)
	_, err := p.client.CoreV1().PersistentVolumeClaims(now.Namespace).Update(ctx, now, metav1.UpdateOptions{})
	return unlessGone(err)
}

func unlessGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// remove removes a volume's data, and then its PersistentVolume. From the beginning of its deletion on nobody binds the latter.
func (p *Provisioner) remove(ctx context.Context, name string, s plan.Seen) error {
	err := p.removeAll(ctx, name, s)
	if err != nil && s.Volume != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
		p.tell(name, s.Volume, "VolumeFailedDelete", err.Error())
	}
	return err
}

func (p *Provisioner) removeAll(ctx context.Context, name string, s plan.Seen) error {
	begun := s.Record != nil && s.Record.Phase == plan.Deleting
	if !begun {
		if err := failpoint.Around("storage/delete", func() error { return p.delete(ctx, s.Volume) }); err != nil {
			return err
		}
	}
	if s.Record != nil {
		if err := p.discard(ctx, *s.Record, s.Volume != nil); err != nil {
			return err
		}
	}
	if s.Volume == nil {
		return nil
	}
	return failpoint.Around("storage/released", func() error { return p.letGo(ctx, name) })
}

// delete begins the deletion of a PersistentVolume that is still as it was seen. It is there until it is let go of.
func (p *Provisioner) delete(ctx context.Context, v *corev1.PersistentVolume) error {
	if v.DeletionTimestamp != nil {
		return nil
	}
	volumes := p.client.CoreV1().PersistentVolumes()
	if !slices.Contains(v.Finalizers, plan.Finalizer) {
		v = v.DeepCopy()
		v.Finalizers = append(v.Finalizers, plan.Finalizer)
		var err error
		if v, err = volumes.Update(ctx, v, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return volumes.Delete(ctx, v.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &v.UID, ResourceVersion: &v.ResourceVersion}})
}

// discard removes a volume's directory, of which is said first that it goes. deleted: its PersistentVolume says so as well, so that a full disk, which has no room
// for the record, can be made emptier: after a kill the same is decided by the PersistentVolume.
func (p *Provisioner) discard(ctx context.Context, r plan.Record, deleted bool) error {
	if r.Phase != plan.Deleting {
		r.Phase = plan.Deleting
		err := failpoint.Around("storage/deleting", func() error { return p.store.Put(r) })
		if full := errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT); err != nil && !(full && deleted) {
			return err
		}
	}
	h, err := p.holders.Of(r.Hold)
	if err != nil {
		return err
	}
	if err := failpoint.Around("storage/detach", func() error { return h.Detach(ctx, p.of(r)) }); err != nil {
		return err
	}
	if err := failpoint.Around("storage/discard", func() error { return h.Discard(ctx, p.of(r)) }); err != nil {
		return err
	}
	if err := failpoint.Around("storage/throw", func() error { return p.store.Throw(ctx, r.Name) }); err != nil {
		return err
	}
	p.forget(r.Name)
	p.log.InfoContext(ctx, "a volume is removed", "volume", r.Name, "claim", r.Claim.String())
	return nil
}

// abandon removes a copy that no claim has got. Its PersistentVolume goes first, as it was seen, so that none gets it meanwhile.
func (p *Provisioner) abandon(ctx context.Context, name string, s plan.Seen) error {
	ours := s.Volume != nil && plan.Ours(s.Volume, p.config.NodeName)
	if ours {
		if err := failpoint.Around("storage/copy/delete", func() error { return p.delete(ctx, s.Volume) }); err != nil {
			return err
		}
	}
	// Without room for the record it goes as well: after a kill the same is decided again.
	if err := p.discard(ctx, *s.Record, true); err != nil || !ours {
		return err
	}
	return failpoint.Around("storage/copy/released", func() error { return p.letGo(ctx, name) })
}

// letGo lets the API server remove a PersistentVolume that is deleted, which it stays. Others write to it meanwhile, who take their own finalizers off: the patch names
// no version, so that neither waits for the other.
func (p *Provisioner) letGo(ctx context.Context, name string) error {
	v, err := cached{p}.volume(ctx, name)
	if err == nil && (v == nil || v.DeletionTimestamp == nil) { // what is seen may be late
		v, err = stored{p.client}.volume(ctx, name)
	}
	switch {
	case err != nil || v == nil:
		return err
	case v.DeletionTimestamp == nil:
		return errLate
	}
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"$deleteFromPrimitiveList/finalizers":[%q]}}`, v.UID, plan.Finalizer)
	_, err = p.client.CoreV1().PersistentVolumes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return unlessGone(err)
}

// undo removes a directory that was begun, if nobody has written to it.
func (p *Provisioner) undo(ctx context.Context, name string) error {
	r, ok := p.store.Get(name)
	if !ok {
		return nil
	}
	if err := p.attach(ctx, r); err != nil && !errors.Is(err, fs.ErrNotExist) { // so that what is in it is seen
		return err
	}
	empty, err := p.store.Empty(name)
	if err == nil && empty && r.Block {
		empty, err = hold.Blank(p.of(r))
	}
	if err != nil {
		return err
	}
	if !empty {
		p.log.ErrorContext(ctx, "a volume that was begun has files in it and no PersistentVolume; it stays", "directory", p.store.Path(name), "claim", r.Claim.String())
		r.Phase = plan.Ready
		return p.store.Put(r)
	}
	return p.discard(ctx, r, false)
}

// lost tells of a volume whose directory is not there, unless it is by now.
func (p *Provisioner) lost(ctx context.Context, name string, s plan.Seen) error {
	r, found, err := p.store.Find(name)
	if err != nil {
		return err
	}
	if found && r.Phase == plan.Ready && p.attach(ctx, r) == nil && p.store.Has(name) {
		p.log.InfoContext(ctx, "a volume's directory is there", "volume", name, "directory", s.Volume.Spec.Local.Path)
		p.forget(name)
		return nil
	}
	message := fmt.Sprintf("The directory %s is not there. It is not made anew: bring it back (is its disk mounted?), or delete the claim", s.Volume.Spec.Local.Path)
	if !p.news(name, message) {
		return errAbsent
	}
	p.log.ErrorContext(ctx, "a volume has lost its directory", "volume", name, "directory", s.Volume.Spec.Local.Path)
	p.events.Event(s.Volume, corev1.EventTypeWarning, "VolumeLost", message)
	if s.Claim != nil {
		p.events.Event(s.Claim, corev1.EventTypeWarning, "VolumeLost", message)
	}
	return errAbsent
}
