package statefulset

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod.dev/monopod/internal/pods"
)

// What becomes of a claim when its set or its member goes, persistentVolumeClaimRetentionPolicy says, and who owns the claim does it: the garbage collector deletes
// it with its owner. So a claim is the set's (whenDeleted: Delete), or that of a pod that is too many (whenScaled: Delete), or nobody's. One that somebody else
// controls is left to them, as is one of a set or of a pod of the same name that was there before: whoever that is, it is not ours to delete what is in it.

// podKind is that of members.
var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

// Ownership is a claim with the owners that it is to have, and the pod that it is for. Foreign: somebody else controls it, so that the policy is not applied.
type Ownership struct {
	Pod     *corev1.Pod
	Claim   *corev1.PersistentVolumeClaim
	Foreign bool
}

// own looks after the claims of pods that are there.
func (r *round) own() {
	if len(r.Set.Spec.VolumeClaimTemplates) == 0 || r.Claim == nil {
		return
	}
	for _, pod := range r.Pods {
		place, named := ordinal(r.Set, pod)
		if !named {
			continue
		}
		lacks := false
		for i := range r.Set.Spec.VolumeClaimTemplates {
			claim := r.Claim(claimName(r.Set, i, place))
			if claim == nil {
				lacks = true
				continue
			}
			if owners, foreign := owners(r.Set, pod, claim); !equality.Semantic.DeepEqual(owners, claim.OwnerReferences) {
				claim = claim.DeepCopy()
				claim.OwnerReferences = owners
				r.plan.Own = append(r.plan.Own, Ownership{pod, claim, foreign})
			}
		}
		if lacks && r.wants(place) && pod.Status.Phase == corev1.PodPending && pod.DeletionTimestamp == nil && !pods.Ended(pod) {
			r.plan.Supply = append(r.plan.Supply, pod)
		}
	}
}

// wants says that there is to be a member of an ordinal.
func (r *round) wants(ordinal int) bool { return inRange(r.Set, ordinal) }

func inRange(set *appsv1.StatefulSet, ordinal int) bool {
	return ordinal >= first(set) && ordinal < first(set)+int(*set.Spec.Replicas)
}

// leftBehind says that a member is not made yet, because a claim of its name belongs to a pod, or to a set of this name, that was there, and goes with it: what
// the member wrote would go as well.
func (r *round) leftBehind(ordinal int) bool {
	if r.Claim == nil {
		return false
	}
	withPods := whenScaled(r.Set) == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	for i := range r.Set.Spec.VolumeClaimTemplates {
		if claim := r.Claim(claimName(r.Set, i, ordinal)); claim != nil && slices.ContainsFunc(claim.OwnerReferences, func(ref metav1.OwnerReference) bool {
			return withPods && names(&ref, podKind, podName(r.Set, ordinal)) || names(&ref, kind, r.Set.Name) && ref.UID != r.Set.UID
		}) {
			return true
		}
	}
	return false
}

func names(ref *metav1.OwnerReference, kind schema.GroupVersionKind, name string) bool {
	return ref.APIVersion == kind.GroupVersion().String() && ref.Kind == kind.Kind && ref.Name == name
}

func whenScaled(set *appsv1.StatefulSet) appsv1.PersistentVolumeClaimRetentionPolicyType {
	if policy := set.Spec.PersistentVolumeClaimRetentionPolicy; policy != nil {
		return policy.WhenScaled
	}
	return appsv1.RetainPersistentVolumeClaimRetentionPolicyType
}

func whenDeleted(set *appsv1.StatefulSet) appsv1.PersistentVolumeClaimRetentionPolicyType {
	if policy := set.Spec.PersistentVolumeClaimRetentionPolicy; policy != nil {
		return policy.WhenDeleted
	}
	return appsv1.RetainPersistentVolumeClaimRetentionPolicyType
}

// owners are those that the claim of a pod of a set is to have. foreign: somebody else controls it, and neither the set nor the pod is to own it.
func owners(set *appsv1.StatefulSet, pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) (all []metav1.OwnerReference, foreign bool) {
	const remove = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	applies := whenScaled(set) == remove || whenDeleted(set) == remove
	ours := func(ref metav1.OwnerReference) bool { return ref.UID == set.UID || ref.UID == pod.UID }
	for _, ref := range claim.OwnerReferences {
		switch former := names(&ref, kind, set.Name) || names(&ref, podKind, pod.Name); {
		case ours(ref):
		case former:
			return claim.OwnerReferences, applies
		case applies && ref.Controller != nil && *ref.Controller:
			foreign = true
		}
	}
	var owner *metav1.OwnerReference
	switch n, _ := ordinal(set, pod); {
	case foreign:
	case whenScaled(set) == remove && !inRange(set, n):
		owner = metav1.NewControllerRef(pod, podKind)
	case whenDeleted(set) == remove:
		owner = metav1.NewControllerRef(set, kind)
	}
	if i := slices.IndexFunc(claim.OwnerReferences, ours); owner != nil && i >= 0 && controls(&claim.OwnerReferences[i], owner) &&
		!slices.ContainsFunc(claim.OwnerReferences[i+1:], ours) {
		return claim.OwnerReferences, false
	}
	all = slices.DeleteFunc(slices.Clone(claim.OwnerReferences), ours)
	if owner != nil {
		all = append(all, *owner)
	}
	return all, foreign
}

// controls says that a reference is one to an owner, and that it is the controller; what else it says is somebody's wish.
func controls(ref, owner *metav1.OwnerReference) bool {
	return ref.UID == owner.UID && ref.Controller != nil && *ref.Controller
}
