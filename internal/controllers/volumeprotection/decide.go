// Package volumeprotection says when a volume, a claim or a class of volumes' attributes that is deleted may go: not while a pod has the claim, the volume is
// bound, or somebody names the class.
//
// Its decisions are pure, and are those of Kubernetes' controllers of their protection. What keeps an object is a finalizer that the API server gives to
// each new one.
package volumeprotection

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/ephemeral"

	"monopod.dev/monopod/internal/pods"
)

// The finalizers.
const (
	VolumeFinalizer = "kubernetes.io/pv-protection"
	ClaimFinalizer  = "kubernetes.io/pvc-protection"
	// AttributesFinalizer is of classes of volumes' attributes.
	AttributesFinalizer = "kubernetes.io/vac-protection"
)

// Verb is what is to be done about an object's finalizer.
type Verb string

const (
	// Leave it as it is.
	Leave Verb = ""
	// Protect: it gets one, since it has none.
	Protect Verb = "protect"
	// Release: nothing uses the object, and it is to go.
	Release Verb = "release"
)

// Volume decides about a volume.
func Volume(v *corev1.PersistentVolume) Verb {
	return verb(&v.ObjectMeta, VolumeFinalizer, func() bool { return v.Status.Phase == corev1.VolumeBound })
}

// Claim decides about a claim. Before it is released the pods of its namespace are those of the store, and not of a cache, which may not show yet who has it.
func Claim(claim *corev1.PersistentVolumeClaim, all []*corev1.Pod) Verb {
	return verb(&claim.ObjectMeta, ClaimFinalizer, func() bool {
		return slices.ContainsFunc(all, func(p *corev1.Pod) bool { return Keeps(p, claim) })
	})
}

// ofAttributes decides about a class of attributes. Before it is released, whether it is used is asked of the store.
func ofAttributes(m *metav1.ObjectMeta, used bool) Verb {
	return verb(m, AttributesFinalizer, func() bool { return used })
}

func verb(m *metav1.ObjectMeta, finalizer string, used func() bool) Verb {
	switch has := slices.Contains(m.Finalizers, finalizer); {
	case m.DeletionTimestamp == nil && !has:
		return Protect
	case m.DeletionTimestamp != nil && has && !used():
		return Release
	}
	return Leave
}

// Keeps says of a pod that it keeps a claim from going: it is on a node. One that is not will not start with a claim that goes. A claim that goes with the pod, since
// the pod has brought it along or owns it, goes when the node is done with the pod, even if something else keeps the pod itself: a pod that is deleted in the
// foreground waits for what it owns, and each would wait for the other. Kubernetes lets go of what was brought along only, so that there a pod that a stateful set
// has too many, which owns its claim, waits for ever.
func Keeps(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	if pod.Spec.NodeName == "" || pod.Namespace != claim.Namespace {
		return false
	}
	done := pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
	goes := done && slices.ContainsFunc(claim.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == pod.UID })
	return !goes && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return names(&v, claim) || brings(pod, &v, claim) })
}

// names and brings say of a volume of a pod that it is the claim: the pod names it, or has brought it along.
func names(v *corev1.Volume, claim *corev1.PersistentVolumeClaim) bool {
	return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name
}

func brings(pod *corev1.Pod, v *corev1.Volume, claim *corev1.PersistentVolumeClaim) bool {
	return v.Ephemeral != nil && ephemeral.VolumeClaimName(pod, v) == claim.Name && ephemeral.VolumeIsForPod(pod, claim) == nil
}

// Unused is the condition of a bound claim that tells since when no pod has it; changed: it is another one than the claim has.
func Unused(claim *corev1.PersistentVolumeClaim, all []*corev1.Pod, now metav1.Time) (c corev1.PersistentVolumeClaimCondition, changed bool) {
	used := slices.ContainsFunc(all, func(p *corev1.Pod) bool {
		return p.Namespace == claim.Namespace && !pods.Ended(p) &&
			slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return names(&v, claim) || brings(p, &v, claim) })
	})
	c = corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimUnused, Status: corev1.ConditionTrue, LastTransitionTime: now,
		Reason: "NoPodsUsingPVC", Message: "No pods are currently referencing this PVC",
	}
	if used {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "PodUsingPVC", "A pod is currently referencing this PVC"
	}
	had := slices.IndexFunc(claim.Status.Conditions, func(o corev1.PersistentVolumeClaimCondition) bool { return o.Type == c.Type })
	return c, claim.Status.Phase == corev1.ClaimBound && claim.DeletionTimestamp == nil && (had < 0 || claim.Status.Conditions[had].Status != c.Status)
}
