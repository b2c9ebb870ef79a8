package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/storage/archive"
	"monopod.dev/monopod/internal/storage/hold"
	"monopod.dev/monopod/internal/storage/plan"
)

// Target is a claim that is to be made, with what is in its volume.
type Target struct {
	// Namespace and Claim may be empty where the source names a claim.
	Namespace, Claim string
	// Class is the storage class; empty: that of the source.
	Class string
	// Size is what the claim requests; nil: as much as the source did. It is at least that.
	Size *resource.Quantity
}

// Made is a claim that was made.
type Made struct {
	Namespace, Claim, Class, Volume string
	Size                            int64
	Hold                            plan.Hold
	// LeftOut are things of an archive that are not in the volume, with the reason; More: how many more.
	LeftOut []string
	More    int
}

// content is what a new volume gets, and what the claim was that had it.
type content struct {
	namespace, claim, class string
	modes                   []corev1.PersistentVolumeAccessMode
	block                   bool
	requested               resource.Quantity
	// size is what the volume held at least.
	size int64
	// fill makes the volume and what is in it.
	fill func(ctx context.Context, v hold.Volume, kind plan.Hold) error
}

// Restore makes a new claim whose volume has what is in a snapshot. Nothing that is there is changed.
func (p *Copies) Restore(ctx context.Context, name string, t Target) (Made, error) {
	if err := p.Ask(); err != nil {
		return Made{}, err
	}
	r, release, err := p.snapshots.Use(name)
	if err != nil {
		return Made{}, err
	}
	defer release()
	still := p.still(r)
	return p.copy(ctx, t, content{
		namespace: r.Claim.Namespace, claim: r.Claim.Name, class: r.Class, modes: r.AccessModes, block: r.Block, requested: r.Requested, size: r.Size,
		fill: func(ctx context.Context, v hold.Volume, kind plan.Hold) error {
			return p.holders.Fill(ctx, still, v, kind)
		},
	})
}

// Import makes a new claim whose volume has what is in an archive, which may be anybody's. Nothing that is there is changed.
func (p *Copies) Import(ctx context.Context, t Target, from io.Reader) (Made, error) {
	if err := p.Ask(); err != nil {
		return Made{}, err
	}
	in, err := archive.Open(from)
	if err != nil {
		return Made{}, err
	}
	c := in.Head.Claim
	var result archive.Result
	made, err := p.copy(ctx, t, content{
		namespace: c.Namespace, claim: c.Name, class: c.Class, modes: c.AccessModes, block: c.Block, requested: c.Size,
		fill: func(ctx context.Context, v hold.Volume, kind plan.Hold) error {
			result, err = p.unpack(ctx, in, v, kind)
			return err
		},
	})
	made.LeftOut, made.More = result.LeftOut, result.More
	return made, err
}

// Of an archive, each file takes at least this much of the disk: the number of files that a claim may have follows from its size. Few have no more than so many in any case.
const (
	leastFile  = 1 << 10
	fewEntries = 1 << 16
)

func (p *Copies) unpack(ctx context.Context, in *archive.Reader, v hold.Volume, kind plan.Hold) (none archive.Result, err error) {
	h, err := p.holders.Of(kind)
	if err != nil {
		return none, err
	}
	if err := h.Make(ctx, v); err != nil {
		return none, err
	}
	if !v.Block {
		return in.Tree(ctx, v.Data, archive.Limits{Bytes: v.Size, Entries: int(max(fewEntries, v.Size/leastFile)), Room: func() error {
			if kind == plan.File {
				return nil // which is reserved
			}
			return p.holders.Spare(1, v.Owed)
		}})
	}
	to, err := os.OpenFile(v.Data, os.O_WRONLY, 0)
	if err != nil {
		return none, err
	}
	defer to.Close()
	return in.Device(ctx, to, v.Size)
}

// copy makes a volume with what it is to have, its PersistentVolume, which is kept for the claim, and the claim last. Until that is there a kill, or an error, leaves what
// is removed by itself; afterwards it is completed.
func (p *Copies) copy(ctx context.Context, t Target, c content) (Made, error) {
	claim, class, err := p.wanted(ctx, t, c)
	if err != nil {
		return Made{}, err
	}
	name := "pvc-" + string(uuid.NewUUID())
	d := plan.Copy(p.config.NodeName, name, claim, class)
	if d.Verb != plan.Make {
		return Made{}, fmt.Errorf("the claim %s cannot be had of the class %s: %s: %w", d.New.Claim, class.Name, d.Why, errdefs.ErrInvalidArgument)
	}
	unlock, err := p.turns.Lock(ctx, name)
	if err != nil {
		return Made{}, err
	}
	r, err := p.filled(ctx, d, c)
	if err == nil {
		r, err = p.offer(ctx, r, claim, class)
	}
	if err != nil {
		p.undoCopy(ctx, name)
	}
	unlock()
	p.queue.Add(name)
	return Made{Namespace: claim.Namespace, Claim: claim.Name, Class: class.Name, Volume: name, Size: r.Size, Hold: r.Hold}, err
}

// wanted is the claim that is to be made, and its class.
func (p *Copies) wanted(ctx context.Context, t Target, c content) (*corev1.PersistentVolumeClaim, *storagev1.StorageClass, error) {
	if t.Namespace == "" && t.Claim == "" {
		t.Namespace, t.Claim = c.namespace, c.claim
	}
	if t.Namespace == "" || t.Claim == "" {
		return nil, nil, fmt.Errorf("the new claim is %q in the namespace %q: name both: %w", t.Claim, t.Namespace, errdefs.ErrInvalidArgument)
	}
	if _, err := p.client.CoreV1().Namespaces().Get(ctx, t.Namespace, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return nil, nil, fmt.Errorf("there is no namespace %s for the claim %s: make it first (kubectl create namespace %s): %w", t.Namespace, t.Claim, t.Namespace, errdefs.ErrNotFound)
	} else if err != nil {
		return nil, nil, err
	}
	switch _, err := p.client.CoreV1().PersistentVolumeClaims(t.Namespace).Get(ctx, t.Claim, metav1.GetOptions{}); {
	case err == nil:
		return nil, nil, exists(t.Namespace, t.Claim)
	case !apierrors.IsNotFound(err):
		return nil, nil, err
	}
	class, err := p.classFor(ctx, t.Class, c.class)
	if err != nil {
		return nil, nil, err
	}
	size := c.requested
	if t.Size != nil {
		size = *t.Size
	}
	if plan.Bytes(size) < max(plan.Bytes(c.requested), c.size) {
		return nil, nil, fmt.Errorf("the new claim would have %s, and what it is to hold had %s: choose at least that with --size: %w", size.String(), c.requested.String(), errdefs.ErrInvalidArgument)
	}
	mode := corev1.PersistentVolumeFilesystem
	if c.block {
		mode = corev1.PersistentVolumeBlock
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: t.Claim},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: c.modes, StorageClassName: &class.Name, VolumeMode: &mode, Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
		},
	}
	// What the API refuses is refused before anything is copied.
	_, err = p.client.CoreV1().PersistentVolumeClaims(t.Namespace).Create(ctx, claim, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return claim, class, err
}

func exists(namespace, claim string) error {
	return fmt.Errorf("there is a claim %s/%s already, which stays as it is: choose another name, or delete it first: %w", namespace, claim, errdefs.ErrAlreadyExists)
}

// classFor is the class that was chosen, or else that of the source, or else the usual one.
func (p *Copies) classFor(ctx context.Context, chosen, source string) (*storagev1.StorageClass, error) {
	name := chosen
	if name == "" {
		name = source
	}
	if name == "" {
		name = plan.ClassName
	}
	class, err := p.client.StorageV1().StorageClasses().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no storage class %s here: choose one with --class (kubectl get storageclass): %w", name, errdefs.ErrNotFound)
	case err != nil:
		return nil, err
	case class.Provisioner != plan.Provisioner:
		return nil, fmt.Errorf("volumes of the storage class %s are made by %s, not by this node: choose one of %s with --class: %w", name, class.Provisioner, plan.Provisioner, errdefs.ErrInvalidArgument)
	}
	return class, nil
}

// filled makes a volume with what it is to have, durably.
func (p *Copies) filled(ctx context.Context, d plan.Decision, c content) (plan.Record, error) {
	r, err := p.begun(ctx, d)
	if err != nil {
		return r, err
	}
	if err := failpoint.Around("storage/copy/record", func() error { return p.store.Put(r) }); err != nil {
		return r, err
	}
	v := p.of(r)
	if v.Owed, err = p.owed(""); err != nil {
		return r, err
	}
	return r, failpoint.Around("storage/copy/data", func() error {
		if err := c.fill(ctx, v, r.Hold); err != nil {
			return err
		}
		return hold.Synced(v)
	})
}

// offer makes the PersistentVolume and the claim.
func (p *Copies) offer(ctx context.Context, r plan.Record, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) (plan.Record, error) {
	if err := failpoint.Around("storage/copy/volume", func() error { return p.publish(ctx, r, plan.Seen{Claim: claim, Class: class}) }); err != nil {
		return r, err
	}
	claim.Spec.VolumeName = r.Name
	var made *corev1.PersistentVolumeClaim
	err := failpoint.Around("storage/copy/claim", func() (err error) {
		made, err = p.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Create(ctx, claim, metav1.CreateOptions{})
		return err
	})
	if apierrors.IsAlreadyExists(err) {
		return r, exists(claim.Namespace, claim.Name)
	}
	if err != nil {
		return r, err
	}
	r.Claim.UID = made.UID
	if err := p.ready(r); err != nil {
		// The claim has it: that is what counts, and is written when it can be.
		p.log.WarnContext(ctx, "the record of a volume does not say yet that it is whole", "volume", r.Name, "claim", r.Claim.String(), "error", err)
	}
	p.log.InfoContext(ctx, "a claim is made with its data", "claim", r.Claim.String(), "volume", r.Name)
	return r, nil
}

// undoCopy removes at once what an attempt has left, as far as it can; the rest is done in the background.
func (p *Copies) undoCopy(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if _, begun := p.store.Get(name); !begun {
		return
	}
	if err := p.settle(ctx, name); err != nil && !errors.Is(err, errLate) && !apierrors.IsConflict(err) {
		p.log.WarnContext(ctx, "what an attempt has left is removed later", "volume", name, "error", err)
	}
}
