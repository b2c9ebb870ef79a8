package volumebinding

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	helpers "k8s.io/component-helpers/storage/volume"

	"monopod.dev/monopod/internal/pods"
)

// Event is what an object's owner is told.
type Event struct{ Type, Reason, Message string }

func warn(reason, message string) *Event {
	return &Event{corev1.EventTypeWarning, reason, message}
}

func note(reason, message string) *Event {
	return &Event{corev1.EventTypeNormal, reason, message}
}

// Seen is what a decision about a claim is made of.
type Seen struct {
	Claim *corev1.PersistentVolumeClaim
	// Volumes are all that may matter: the one that the claim names, or those that point at the claim, and those of its class that nobody has.
	Volumes []*corev1.PersistentVolume
	Classes []*storagev1.StorageClass
	// Waiting are the names of the pods that use the claim and have no node yet.
	Waiting []string
}

// Verb is what is to be done about a claim.
type Verb string

// The verbs. Each but None and Lose may have an event beside it.
const (
	// None: nothing, now.
	None Verb = ""
	// Wait: the claim is Pending, and not bound to anything.
	Wait Verb = "wait"
	// Bind: the claim gets the volume, or its binding is completed.
	Bind Verb = "bind"
	// Classify: the claim, which named none, gets the class.
	Classify Verb = "classify"
	// Announce: the claim is told to the provisioner of the class, who makes a volume for it.
	Announce Verb = "announce"
	// Lose: the claim was bound, and its volume is gone or another's. There is no way back.
	Lose Verb = "lose"
)

// ForClaim is a decision about a claim.
type ForClaim struct {
	Verb   Verb
	Volume *corev1.PersistentVolume
	Class  *storagev1.StorageClass
	// Event is for the claim; nil: nothing is new to be told.
	Event *Event
}

// Claim decides about a claim.
func Claim(s Seen) (ForClaim, error) {
	switch {
	case metav1.HasAnnotation(s.Claim.ObjectMeta, helpers.AnnBindCompleted):
		return s.bound(), nil
	case s.Claim.DeletionTimestamp != nil:
		return ForClaim{}, nil // nothing new for what goes
	case s.Claim.Spec.VolumeName != "":
		return s.named(), nil
	}
	return s.unbound()
}

// bound is about a claim whose binding was complete.
func (s Seen) bound() ForClaim {
	lost := func(reason, message string) ForClaim { return ForClaim{Verb: Lose, Event: warn(reason, message)} }
	if s.Claim.Spec.VolumeName == "" {
		return lost("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
	}
	v := s.volume(s.Claim.Spec.VolumeName)
	switch {
	case v == nil:
		return lost("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
	case v.Spec.ClaimRef != nil && v.Spec.ClaimRef.UID != s.Claim.UID:
		return lost("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
	}
	return ForClaim{Verb: Bind, Volume: v} // which does nothing where all is well
}

// named is about a claim that names a volume, and is not bound to it yet.
func (s Seen) named() ForClaim {
	v := s.volume(s.Claim.Spec.VolumeName)
	switch {
	case v == nil:
		return ForClaim{Verb: Wait}
	case v.Spec.ClaimRef == nil:
		if why := unfit(v, s.Claim); why != "" {
			return ForClaim{Verb: Wait, Event: warn("VolumeMismatch", fmt.Sprintf("Cannot bind to requested volume %q: %s", v.Name, why))}
		}
	case !helpers.IsVolumeBoundToClaim(v, s.Claim):
		return ForClaim{Verb: Wait, Event: warn("FailedBinding", fmt.Sprintf("volume %q already bound to a different claim.", v.Name))}
	}
	return ForClaim{Verb: Bind, Volume: v}
}

// unbound is about a claim that would have any volume that fits.
func (s Seen) unbound() (ForClaim, error) {
	class := s.class()
	late := class != nil && class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
	usual := pods.DefaultStorageClass(s.Classes)
	v, err := best(s.Claim, s.Volumes, late)
	switch {
	case err != nil:
		return ForClaim{}, err
	case v != nil:
		return ForClaim{Verb: Bind, Volume: v}, nil
	case !helpers.PersistentVolumeClaimHasClass(s.Claim) && usual != nil:
		return ForClaim{Verb: Classify, Class: usual}, nil
	case late && !helpers.IsDelayBindingProvisioning(s.Claim):
		return ForClaim{Verb: Wait, Event: s.consumers()}, nil
	}
	if name := helpers.GetPersistentVolumeClaimClass(s.Claim); name != "" {
		return s.provision(name, class), nil
	}
	return ForClaim{Verb: Wait, Event: note("FailedBinding", "no persistent volumes available for this claim and no storage class is set")}, nil
}

// inTree begins the names of provisioners that were a part of Kubernetes, and of the one that makes nothing. All others watch claims and volumes.
const inTree = "kubernetes.io/"

// Outside says of a class's provisioner that it is one of the others, to whom a claim is announced.
func Outside(provisioner string) bool {
	return provisioner != "" && !strings.HasPrefix(provisioner, inTree)
}

// provision is about who makes a volume.
func (s Seen) provision(name string, class *storagev1.StorageClass) ForClaim {
	const failed = "ProvisioningFailed"
	switch {
	case class == nil:
		return ForClaim{Verb: Wait, Event: warn(failed, fmt.Sprintf("storageclass.storage.k8s.io %q not found", name))}
	case !Outside(class.Provisioner):
		return ForClaim{Verb: Wait, Event: warn(failed, "no volume plugin matched name: "+class.Provisioner)}
	}
	return ForClaim{Verb: Announce, Class: class, Event: note("ExternalProvisioning", fmt.Sprintf(
		"Waiting for a volume to be created either by the external provisioner '%s' or manually by the system administrator. "+
			"If volume creation is delayed, please verify that the provisioner is running and correctly registered.", class.Provisioner))}
}

// consumers says for which pod a claim waits whose volume is chosen together with the pod's node.
func (s Seen) consumers() *Event {
	switch names := slices.Sorted(slices.Values(s.Waiting)); len(names) {
	case 0:
		return note("WaitForFirstConsumer", "waiting for first consumer to be created before binding")
	case 1:
		return note("WaitForPodScheduled", fmt.Sprintf("waiting for pod %s to be scheduled", names[0]))
	default:
		return note("WaitForPodScheduled", fmt.Sprintf("waiting for pods %s to be scheduled", strings.Join(names, ",")))
	}
}

func (s Seen) volume(name string) *corev1.PersistentVolume {
	return find(s.Volumes, func(v *corev1.PersistentVolume) bool { return v.Name == name })
}

func (s Seen) class() *storagev1.StorageClass {
	name := helpers.GetPersistentVolumeClaimClass(s.Claim)
	return find(s.Classes, func(c *storagev1.StorageClass) bool { return c.Name == name })
}

func find[T any](list []*T, is func(*T) bool) *T {
	if i := slices.IndexFunc(list, is); i >= 0 {
		return list[i]
	}
	return nil
}

// best is the volume that fits a claim: one that was made or kept for it, else the smallest of those that can be used in the fewest ways. late: who chooses the
// node of the claim's pod chooses the volume as well, but for one that was kept for the claim. Nil: there is none.
func best(claim *corev1.PersistentVolumeClaim, volumes []*corev1.PersistentVolume, late bool) (*corev1.PersistentVolume, error) {
	byWays := map[int][]*corev1.PersistentVolume{}
	var ways []int
	for _, v := range volumes {
		if !helpers.CheckAccessModes(claim, v) {
			continue
		}
		n := sets.New(v.Spec.AccessModes...).Len()
		if helpers.IsVolumeBoundToClaim(v, claim) {
			n = 0
		}
		if byWays[n] == nil {
			ways = append(ways, n)
		}
		byWays[n] = append(byWays[n], v)
	}
	slices.Sort(ways)
	for _, n := range ways {
		found, err := helpers.FindMatchingVolume(claim, byWays[n], nil, nil, late, true)
		if found != nil || err != nil {
			return found, err
		}
	}
	return nil, nil
}

// unfit says why a claim cannot have the volume that it names; empty: it can.
func unfit(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) string {
	has, wants := v.Spec.Capacity[corev1.ResourceStorage], claim.Spec.Resources.Requests[corev1.ResourceStorage]
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	switch {
	case v.DeletionTimestamp != nil:
		return fmt.Sprintf("the volume is marked for deletion %q", v.Name)
	case has.Value() < wants.Value():
		return "requested PV is too small"
	case helpers.GetPersistentVolumeClass(v) != helpers.GetPersistentVolumeClaimClass(claim):
		return "storageClassName does not match"
	case text(v.Spec.VolumeAttributesClassName) != text(claim.Spec.VolumeAttributesClassName):
		return "volumeAttributesClassName does not match"
	case helpers.CheckVolumeModeMismatches(&claim.Spec, &v.Spec):
		return "incompatible volumeMode"
	case !helpers.CheckAccessModes(claim, v):
		return "incompatible accessMode"
	}
	return ""
}
