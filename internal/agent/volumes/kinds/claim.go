package kinds

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"
	volumehelpers "k8s.io/component-helpers/storage/volume"

	"monopod.dev/monopod/internal/agent/objects"
	"monopod.dev/monopod/internal/agent/volumes/claims"
	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/kit/keyed"
)

// claim is the volume that a claim is bound to: one that the pod names, or one that is made along with the pod.
//
// What it holds is not the pod's, and outlives it. So nothing of it is ever made anew here: what is not where its PersistentVolume says is an error. It gets its place in the pod's
// directory as the last step, as a whole: what lies there is complete, or it is nothing. And a container gets it only while it is there, lest it writes to the
// empty directory below.
type claim struct {
	still
	cfg     Config
	servers *nfsServers

	mu sync.Mutex // held from the look at who has a volume until it is on record who has it
	// making is held, by the UID of a local volume, from the look at who has it until it is on record that a pod has it as a whole: pods that start together have it one after another, and none
	// before its files were given to the group of the one before.
	making keyed.Lock[types.UID]
}

// Facts implements Kind.
func (*claim) Facts() Facts { return Facts{Holds: true} }

// placeOf is the directory of the pod that a volume in a directory is of, and the volume's name, by the layout of package volumes.
func placeOf(dir string) (pod, name string) {
	return filepath.Dir(filepath.Dir(dir)), filepath.Base(dir)
}

// Setup implements Kind. A volume that is in its place is complete; then nobody is asked: an agent that was started anew goes on with its pods while there is no API server, and also if
// somebody has deleted the claim meanwhile.
func (c *claim) Setup(ctx context.Context, v *Volume) error {
	pod, name := placeOf(v.Dir)
	before, err := claims.Read(pod, name)
	known := err == nil
	there := known && inPlace(v.Dir, before) == nil
	switch {
	case there && !before.Pending:
		return nil
	case there && before.Mounted: // an agent got no further
		return c.making.Do(ctx, before.VolumeUID, func() error { return made(pod, name, before) })
	}
	b, err := c.bound(ctx, v)
	if err != nil {
		return err
	}
	source, err := c.sourceOf(b)
	if err != nil {
		return err
	}
	r := b.onRecord(source.record())
	// What was made before is so still for others, though it is not in its place.
	r.Pending = !known || before.Pending || before.VolumeUID != r.VolumeUID
	if r.Source == claims.Local && r.Mounted {
		unlock, err := c.making.Lock(ctx, r.VolumeUID)
		if err != nil {
			return fmt.Errorf("volume %s is being made for another pod: %w", r.Volume, err)
		}
		defer unlock()
	}
	if err := c.notLeft(pod, r); err != nil {
		return err
	}
	if err := c.take(pod, name, b, r); err != nil {
		return err
	}
	if err := source.make(ctx, v.Dir); err != nil {
		return err
	}
	return made(pod, name, r)
}

// made puts on record that the pod has the volume as a whole.
func made(pod, name string, r claims.Record) error {
	if !r.Pending {
		return nil
	}
	r.Pending = false
	return claims.Write(pod, name, r)
}

// onRecord adds the names of the objects to a record, and whether the pod may only read.
func (b *bound) onRecord(r claims.Record) claims.Record {
	r.Namespace, r.Claim, r.ClaimUID = b.claim.Namespace, b.claim.Name, b.claim.UID
	r.Volume, r.VolumeUID, r.ReadOnly = b.volume.Name, b.volume.UID, r.ReadOnly || b.mayOnly
	return r
}

// source is what a claim's volume is made from.
type source interface {
	// record is what is put on record of it, but for the names of the objects.
	record() claims.Record
	// make makes it at a directory of the pod's, which is not there yet; or only sees to it that it is there, where the record says that it is not mounted.
	make(ctx context.Context, dir string) error
}

// bound is a claim with the volume that it is bound to, as a pod uses them.
type bound struct {
	pod     *v1.Pod
	name    string // the pod's, of the volume
	claim   *v1.PersistentVolumeClaim
	volume  *v1.PersistentVolume
	use     use
	mayOnly bool // no container may write to it
}

// bound finds the claim and its volume, in the order and with the words of a kubelet.
func (c *claim) bound(ctx context.Context, v *Volume) (*bound, error) {
	name, readOnly := claimNamed(v)
	pvc, err := objects.Get[*v1.PersistentVolumeClaim](ctx, c.cfg.Objects, objects.Name{Kind: objects.Claim, Namespace: v.Pod.Namespace, Name: name})
	if err != nil {
		err = fmt.Errorf("failed to fetch PVC from API server: %w", err)
	} else {
		err = usable(v, pvc)
	}
	if err != nil {
		return nil, fmt.Errorf("error processing PVC %s/%s: %w", v.Pod.Namespace, name, err)
	}
	pv, err := objects.Get[*v1.PersistentVolume](ctx, c.cfg.Objects, objects.Name{Kind: objects.Volume, Name: pvc.Spec.VolumeName})
	if err != nil {
		return nil, fmt.Errorf("error processing PVC %s/%s: failed to fetch PV %s from API server: %w", pvc.Namespace, name, pvc.Spec.VolumeName, err)
	}
	switch ref := pv.Spec.ClaimRef; {
	case ref == nil:
		return nil, fmt.Errorf("error processing PVC %s/%s: found PV object %s has nil pv.Spec.ClaimRef indicating it is not yet bound to the claim", pvc.Namespace, name, pv.Name)
	case ref.UID != pvc.UID:
		return nil, fmt.Errorf("error processing PVC %s/%s: found PV object %s has pv.Spec.ClaimRef.UID %s, which does not point to PVC UID %s", pvc.Namespace, name, pv.Name, ref.UID, pvc.UID)
	}
	if err := c.onThisNode(pv); err != nil {
		return nil, err
	}
	b := &bound{pod: v.Pod, name: v.Spec.Name, claim: pvc, volume: pv, use: useOf(v.Pod, v.Spec.Name)}
	b.mayOnly = readOnly || onlyReadOnly(pvc.Spec.AccessModes)
	return b, b.modeFits()
}

// claimNamed is the claim that stands for a volume of a pod, and whether the pod wants it to be read-only.
func claimNamed(v *Volume) (name string, readOnly bool) {
	if v.Spec.Ephemeral != nil {
		return ephemeral.VolumeClaimName(v.Pod, v.Spec), false
	}
	return v.Spec.PersistentVolumeClaim.ClaimName, v.Spec.PersistentVolumeClaim.ReadOnly
}

// usable says whether a pod that has not used a claim may begin to.
func usable(v *Volume, pvc *v1.PersistentVolumeClaim) error {
	if v.Spec.Ephemeral != nil {
		if err := ephemeral.VolumeIsForPod(v.Pod, pvc); err != nil {
			return err
		}
	}
	switch {
	case pvc.DeletionTimestamp != nil:
		return errors.New("PVC is being deleted")
	case pvc.Status.Phase == v1.ClaimLost:
		return fmt.Errorf("PVC is not bound: it has lost its volume %s", pvc.Spec.VolumeName)
	case pvc.Status.Phase != v1.ClaimBound || pvc.Spec.VolumeName == "":
		return errors.New("PVC is not bound")
	}
	return nil
}

func onlyReadOnly(modes []v1.PersistentVolumeAccessMode) bool {
	return len(modes) > 0 && !slices.ContainsFunc(modes, func(m v1.PersistentVolumeAccessMode) bool { return m != v1.ReadOnlyMany })
}

// onThisNode says why a volume cannot be had on this node, by its affinity.
func (c *claim) onThisNode(pv *v1.PersistentVolume) error {
	if pv.Spec.NodeAffinity == nil {
		return nil
	}
	var node *v1.Node
	if c.cfg.Node != nil {
		node = c.cfg.Node()
	}
	if node == nil {
		return fmt.Errorf("MountVolume.NodeAffinity check failed for volume %q : the labels of the node are not known yet", pv.Name)
	}
	if err := volumehelpers.CheckNodeAffinity(pv, node.Labels); err != nil {
		return fmt.Errorf("MountVolume.NodeAffinity check failed for volume %q : %w", pv.Name, err)
	}
	return nil
}

func (b *bound) block() bool {
	return b.volume.Spec.VolumeMode != nil && *b.volume.Spec.VolumeMode == v1.PersistentVolumeBlock
}

// modeFits says whether containers have the volume as what it is.
func (b *bound) modeFits() error {
	switch {
	case b.block() && b.use.mounted:
		return fmt.Errorf("volume %s has volumeMode Block, but is specified in volumeMounts", b.name)
	case !b.block() && b.use.device:
		return fmt.Errorf("volume %s has volumeMode Filesystem, but is specified in volumeDevices", b.name)
	}
	return nil
}

// once is the access mode of a volume that one pod has at a time.
func (b *bound) once() bool {
	return slices.Contains(b.claim.Spec.AccessModes, v1.ReadWriteOncePod) || slices.Contains(b.volume.Spec.AccessModes, v1.ReadWriteOncePod)
}

// take puts on record that the pod has the volume, unless another one has it that wants to have it alone.
func (c *claim) take(pod, name string, b *bound, r claims.Record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.once() {
		switch had, err := hadByOthers(pod, r.VolumeUID, func(claims.Record) bool { return true }); {
		case err != nil:
			return err
		case had:
			return errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")
		}
	}
	return claims.Write(pod, name, r)
}

// hadByOthers says whether another pod of the node has the volume, by a record that counts.
func hadByOthers(pod string, volume types.UID, counts func(claims.Record) bool) (bool, error) {
	entries, err := os.ReadDir(filepath.Dir(pod))
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if e.Name() == filepath.Base(pod) {
			continue
		}
		for _, other := range claims.All(filepath.Join(filepath.Dir(pod), e.Name())) {
			if other.VolumeUID == volume && counts(other) {
				return true, nil
			}
		}
	}
	return false, nil
}

// inPlace says why a volume that is on record is not there.
func inPlace(dir string, r claims.Record) error {
	if !r.Mounted {
		if _, err := os.Stat(r.Path); err != nil {
			return fmt.Errorf("volume %s is not there: %w", r.Volume, err)
		}
		return nil
	}
	look := mount.IsPoint
	if r.Source == claims.NFS {
		look = mount.Listed
	}
	is, err := look(dir)
	if err == nil && !is {
		err = fmt.Errorf("volume %s, %s %s, is not mounted at %s", r.Volume, r.Source, r.Path, dir)
	}
	return err
}

// Mount implements Kind.
func (*claim) Mount(v *Volume) (Source, error) {
	r, err := claims.Read(placeOf(v.Dir))
	if errors.Is(err, fs.ErrNotExist) {
		return Source{}, fmt.Errorf("the claim of volume %s is not set up", v.Spec.Name)
	}
	if err == nil {
		err = inPlace(v.Dir, r)
	}
	switch {
	case err != nil:
		return Source{}, err
	case r.Block:
		return Source{Device: r.Path, ReadOnly: r.ReadOnly}, nil
	case r.Mounted:
		return Source{Path: v.Dir, ReadOnly: r.ReadOnly}, nil
	}
	return Source{Path: r.Path, ReadOnly: r.ReadOnly}, nil
}

// Teardown implements Kind. What was mounted in the volume goes with it, but stays where it was mounted from.
func (c *claim) Teardown(ctx context.Context, l *Left) error {
	if r, err := claims.Read(placeOf(l.Dir)); err == nil && r.Source == claims.NFS {
		return c.servers.unmount(ctx, r.Path, l.Dir)
	}
	for {
		is, err := mount.IsPoint(l.Dir)
		if err != nil || !is {
			return err
		}
		if err := mount.Detach(l.Dir); err != nil {
			return err
		}
	}
}

// use is how the containers of a pod use a volume.
type use struct {
	mounted, device bool
	// receives: a container sees what is mounted in the volume later.
	receives bool
}

func useOf(pod *v1.Pod, name string) (u use) {
	of := func(mounts []v1.VolumeMount, devices []v1.VolumeDevice) {
		for _, m := range mounts {
			if m.Name == name {
				u.mounted = true
				u.receives = u.receives || m.MountPropagation != nil && *m.MountPropagation != v1.MountPropagationNone
			}
		}
		for _, d := range devices {
			u.device = u.device || d.Name == name
		}
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		of(c.VolumeMounts, c.VolumeDevices)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		of(c.VolumeMounts, c.VolumeDevices)
	}
	return u
}
