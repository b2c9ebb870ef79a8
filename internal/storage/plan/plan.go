// Package plan decides about volumes that are made for claims: what a claim gets, and what becomes of a volume's directory.
//
// It looks at a record, a PersistentVolume and a claim, each as it was seen last, and says what is to be done next. Nothing is removed but by two decisions, Undo
// and Remove: who acts on them sees the objects in the store itself and decides once more.
package plan

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	helpers "k8s.io/component-helpers/storage/volume"
)

const (
	// Provisioner is the name by which classes ask for volumes of this kind.
	Provisioner = "monopod.dev/local"
	// Finalizer keeps a PersistentVolume until its directory is dealt with. It is the one that provisioners have by custom.
	Finalizer = helpers.PVDeletionProtectionFinalizer
	// DataDir is the name of what pods get in a volume's directory.
	DataDir = "data"
)

// Seen is what a decision is made of. nil: there is none.
type Seen struct {
	// Node is the name of this node, and its label kubernetes.io/hostname.
	Node string
	// Record is that of the directory. Missing: what it tells of is not on the disk.
	Record  *Record
	Missing bool
	// Volume is the PersistentVolume of the name.
	Volume *corev1.PersistentVolume
	// Claim is the one that the record, or the volume, is for, with their UID, or that wants a volume of the name.
	Claim *corev1.PersistentVolumeClaim
	// Class is the claim's.
	Class *storagev1.StorageClass
	// NodeGone: the node that was selected for the claim is not there.
	NodeGone bool
}

// Verb is what is to be done about a volume.
type Verb string

// The verbs.
const (
	// Leave: nothing, now.
	Leave Verb = ""
	// Make: the directory, and then the PersistentVolume; what there is of them is taken as it is.
	Make Verb = "make"
	// Confirm: the PersistentVolume is there, so the record becomes Ready.
	Confirm Verb = "confirm"
	// Refuse: the claim gets nothing, and is told why.
	Refuse Verb = "refuse"
	// Reselect: the claim's pod is to get another node.
	Reselect Verb = "reselect"
	// Grow: the volume is to hold as much as the claim requests.
	Grow Verb = "grow"
	// Remove: the data go, and then the PersistentVolume.
	Remove Verb = "remove"
	// Release: the PersistentVolume is let go of; the data stay.
	Release Verb = "release"
	// Undo: a directory that was begun and that nobody wants any more goes.
	Undo Verb = "undo"
	// Abandon: a copy that no claim has goes, and its PersistentVolume before it.
	Abandon Verb = "abandon"
	// Lost: there is a PersistentVolume, and its directory is not there.
	Lost Verb = "lost"
	// Stray: there is a directory with data, and no PersistentVolume. It stays.
	Stray Verb = "stray"
)

// Decision is what is to be done.
type Decision struct {
	Verb Verb
	// Why is for people: the reason of a refusal.
	Why string
	// New is the record to begin with, of Make; its Hold is what the class asks for, Auto to be chosen.
	New Record
	// Isolation is what the class asks for, of Make.
	Isolation Isolation
}

// Requested is how much a claim requests.
func Requested(claim *corev1.PersistentVolumeClaim) resource.Quantity {
	return claim.Spec.Resources.Requests[corev1.ResourceStorage]
}

// VolumeName is the name of the volume that is made for a claim.
func VolumeName(claim *corev1.PersistentVolumeClaim) string { return "pvc-" + string(claim.UID) }

// Decide decides about one volume.
func Decide(s Seen) Decision {
	switch {
	case s.Record != nil && s.Record.Phase == Deleting && !s.restored():
		return Decision{Verb: Remove} // which was decided before; only the rest of it is left
	case s.Record != nil && s.Record.Phase == Filling:
		return s.filling()
	case s.Volume != nil && !s.ours():
		if s.Record != nil && s.Record.Phase == Creating {
			return Decision{Verb: Undo} // another node was faster
		}
		return Decision{} // somebody else's
	case s.Volume != nil:
		return s.volume()
	case s.wanted():
		return s.provision()
	case s.Record == nil:
		return Decision{}
	case s.Record.Phase == Creating:
		return Decision{Verb: Undo}
	}
	return Decision{Verb: Stray}
}

// restored says whether a volume whose removal has begun is one that nobody deletes, as after a return to an earlier state of the API: what is still there of it stays.
func (s Seen) restored() bool {
	return s.Volume != nil && s.ours() && s.Volume.DeletionTimestamp == nil && !s.Missing
}

// ours says whether the volume is one that was made here.
func (s Seen) ours() bool { return Ours(s.Volume, s.Node) }

// Ours says whether a volume is one that was made on a node.
func Ours(v *corev1.PersistentVolume, node string) bool {
	return v.Annotations[helpers.AnnDynamicallyProvisioned] == Provisioner && v.Spec.Local != nil && Host(v) == node
}

// Host is the node that a volume is on by its affinity; empty: it does not say.
func Host(v *corev1.PersistentVolume) string {
	if v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil {
		return ""
	}
	for _, term := range v.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, r := range term.MatchExpressions {
			if r.Key == corev1.LabelHostname && r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1 {
				return r.Values[0]
			}
		}
	}
	return ""
}

// filling is about a copy whose making has ended, or was cut off. It is kept from the moment that a claim has it, or may have: a claim that names it, or one that the
// volume names by its UID.
func (s Seen) filling() Decision {
	ours := s.Volume != nil && s.ours()
	if s.Claim != nil || ours && s.Volume.Spec.ClaimRef != nil && s.Volume.Spec.ClaimRef.UID != "" {
		return Decision{Verb: Confirm}
	}
	return Decision{Verb: Abandon}
}

// volume is about a volume of ours.
func (s Seen) volume() Decision {
	v := s.Volume
	// One that names no claim by its UID was given back to whoever wants it, with what is in it: its phase is late.
	given := v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID == ""
	released := v.Status.Phase == corev1.VolumeReleased && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete && s.Claim == nil && !given
	switch {
	case released && (v.DeletionTimestamp == nil || slices.Contains(v.Finalizers, Finalizer)):
		return Decision{Verb: Remove}
	case v.DeletionTimestamp != nil && v.Status.Phase != corev1.VolumeBound && slices.Contains(v.Finalizers, Finalizer):
		return Decision{Verb: Release}
	case v.DeletionTimestamp != nil:
		return Decision{}
	case s.Record == nil || s.Missing:
		return Decision{Verb: Lost}
	case s.Record.Phase != Ready:
		return Decision{Verb: Confirm}
	case s.grows():
		return Decision{Verb: Grow}
	}
	return Decision{}
}

// grows says whether the claim that the volume is bound to requests more than it is said to have.
func (s Seen) grows() bool {
	c := s.Claim
	if c == nil || c.DeletionTimestamp != nil || c.Status.Phase != corev1.ClaimBound || c.Spec.VolumeName != s.Volume.Name {
		return false
	}
	wants, has, is := Requested(c), c.Status.Capacity[corev1.ResourceStorage], s.Volume.Spec.Capacity[corev1.ResourceStorage]
	return wants.Cmp(has) > 0 || wants.Cmp(is) > 0
}

// wanted says whether the claim waits for a volume of ours, as far as it says itself.
func (s Seen) wanted() bool {
	c := s.Claim
	if c == nil || c.DeletionTimestamp != nil || c.Spec.VolumeName != "" || c.Status.Phase == corev1.ClaimLost {
		return false
	}
	if c.Annotations[helpers.AnnStorageProvisioner] != Provisioner && c.Annotations[helpers.AnnBetaStorageProvisioner] != Provisioner {
		return false
	}
	if s.Class == nil || s.Class.Provisioner != Provisioner {
		return false
	}
	selected := c.Annotations[helpers.AnnSelectedNode]
	if selected == "" {
		return s.Class.VolumeBindingMode == nil || *s.Class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer
	}
	return selected == s.Node || s.NodeGone
}

// provision is about a claim that waits for a volume of ours.
func (s Seen) provision() Decision {
	c := s.Claim
	if s.NodeGone {
		return Decision{Verb: Reselect}
	}
	if c.Spec.Selector != nil {
		return refuse("a volume is made for the claim, so it cannot have a selector of volumes: remove spec.selector")
	}
	if c.Spec.DataSource != nil || c.Spec.DataSourceRef != nil {
		return refuse("volumes of this class begin empty: remove spec.dataSource and spec.dataSourceRef")
	}
	if name := c.Spec.VolumeAttributesClassName; name != nil && *name != "" {
		return refuse(fmt.Sprintf("volumes of this class have no attributes that the VolumeAttributesClass %q could set: remove spec.volumeAttributesClassName", *name))
	}
	for _, mode := range c.Spec.AccessModes {
		if mode != corev1.ReadWriteOnce && mode != corev1.ReadWriteOncePod {
			return refuse(fmt.Sprintf("the access mode %s cannot be had, since the volume is on one node: use ReadWriteOnce, which several pods of that node may share, or ReadWriteOncePod", mode))
		}
	}
	isolation, err := Parameters(s.Class)
	if err != nil {
		return refuse(err.Error())
	}
	block := c.Spec.VolumeMode != nil && *c.Spec.VolumeMode == corev1.PersistentVolumeBlock
	if block && (isolation == Quota || isolation == Unlimited) {
		return refuse(fmt.Sprintf("volumeMode Block needs a class with the parameter isolation: auto or image, and that of %s is %s", s.Class.Name, isolation))
	}
	size := Requested(c)
	return Decision{Verb: Make, Isolation: isolation, New: Record{
		Version: RecordVersion, Name: VolumeName(c), Phase: Creating, Node: s.Node, Claim: Claimant{c.Namespace, c.Name, c.UID}, Class: s.Class.Name, Size: Bytes(size), Block: block,
	}}
}

// Copy is the record to begin with of a volume that is filled before there is a claim: Verb is Make, or Refuse. The claim is as it will be asked for.
func Copy(node, name string, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) Decision {
	d := Seen{Node: node, Claim: claim, Class: class}.provision()
	d.New.Name, d.New.Phase = name, Filling
	return d
}

func refuse(why string) Decision { return Decision{Verb: Refuse, Why: why} }

// blockSize is what sizes are multiples of.
const blockSize = 4096

// Bytes is how many bytes a volume holds for which so much is requested. A size that no disk has is the largest number.
func Bytes(q resource.Quantity) int64 {
	const most = 1<<62 - blockSize
	return (min(max(q.Value(), 1), most) + blockSize - 1) / blockSize * blockSize
}

// Isolation is what a class wants to hold the sizes of its volumes.
type Isolation string

// The values of the parameter.
const (
	// Auto: a quota where the file system has one, an image for block devices, else nothing.
	Auto Isolation = "auto"
	// Quota: a quota of the file system, or no volume.
	Quota Isolation = "quota"
	// Image: a file of the size.
	Image Isolation = "image"
	// Unlimited: nothing.
	Unlimited Isolation = "none"
)

// IsolationParameter is the key of the one parameter that a class may have.
const IsolationParameter = "isolation"

// Parameters reads those of a class.
func Parameters(class *storagev1.StorageClass) (Isolation, error) {
	var unknown []string
	for key := range class.Parameters {
		if key != IsolationParameter {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return "", fmt.Errorf("the storage class %s has the parameter %s, which %s does not know: it knows %s", class.Name, strings.Join(unknown, ", "), Provisioner, IsolationParameter)
	}
	switch i := Isolation(class.Parameters[IsolationParameter]); i {
	case "":
		return Auto, nil
	case Auto, Quota, Image, Unlimited:
		return i, nil
	default:
		return "", fmt.Errorf("the storage class %s has the parameter %s: %q, which must be auto, quota, image or none", class.Name, IsolationParameter, i)
	}
}

// Volume is the PersistentVolume of a record, which lies below dir on a node. capacity is what it is said to have.
func Volume(r *Record, dir, node string, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, capacity resource.Quantity) *corev1.PersistentVolume {
	policy := corev1.PersistentVolumeReclaimDelete
	if class.ReclaimPolicy != nil {
		policy = *class.ReclaimPolicy
	}
	mode := corev1.PersistentVolumeFilesystem
	if r.Block {
		mode = corev1.PersistentVolumeBlock
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: r.Name, Annotations: map[string]string{helpers.AnnDynamicallyProvisioned: Provisioner}, Finalizers: []string{Finalizer},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: capacity},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: filepath.Join(dir, r.Name, DataDir)}},
			AccessModes:            slices.Clone(claim.Spec.AccessModes),
			ClaimRef: &corev1.ObjectReference{
				Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
			},
			PersistentVolumeReclaimPolicy: policy,
			StorageClassName:              class.Name,
			MountOptions:                  slices.Clone(class.MountOptions),
			VolumeMode:                    &mode,
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
			}}}},
		},
	}
}

// Class is the default class, as it is made when there is none by the name. usual: claims that name no class get it.
func Class(usual bool) *storagev1.StorageClass {
	late, del, grows := storagev1.VolumeBindingWaitForFirstConsumer, corev1.PersistentVolumeReclaimDelete, true
	c := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: ClassName}, Provisioner: Provisioner, VolumeBindingMode: &late, ReclaimPolicy: &del, AllowVolumeExpansion: &grows,
		Parameters: map[string]string{IsolationParameter: string(Auto)},
	}
	if usual {
		c.Annotations = map[string]string{DefaultAnnotation: "true"}
	}
	return c
}

// ClassName is that of the default class; DefaultAnnotation is what makes a class the default. SizesAnnotation tells people what holds the sizes of the volumes that a
// class gets from now on.
const (
	ClassName         = "local"
	DefaultAnnotation = "storageclass.kubernetes.io/is-default-class"
	SizesAnnotation   = "monopod.dev/sizes-held-by"
)
