package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FailedCondition is the condition of a claim that says why no volume is made for it, for as long as that is so. The binder reads it (controllers/binder): the
// claim's pod does not keep a place for a volume that does not come.
const FailedCondition corev1.PersistentVolumeClaimConditionType = "monopod.dev/ProvisioningFailed"

// failedReason is the reason of that condition, as of the event that tells the same.
const failedReason = "ProvisioningFailed"

// Failed is a claim that says why no volume is made for it. changed: it is another one than claim, which is not touched.
func Failed(claim *corev1.PersistentVolumeClaim, why string, now metav1.Time) (told *corev1.PersistentVolumeClaim, changed bool) {
	c := corev1.PersistentVolumeClaimCondition{Type: FailedCondition, Status: corev1.ConditionTrue, Reason: failedReason, Message: why, LastTransitionTime: now}
	i := slices.IndexFunc(claim.Status.Conditions, isFailure)
	if i >= 0 && claim.Status.Conditions[i].Message == why && claim.Status.Conditions[i].Status == c.Status {
		return claim, false
	}
	told = claim.DeepCopy()
	if i < 0 {
		told.Status.Conditions = append(told.Status.Conditions, c)
	} else {
		told.Status.Conditions[i] = c
	}
	return told, true
}

// Succeeded is a claim that says no such thing any more.
func Succeeded(claim *corev1.PersistentVolumeClaim) (told *corev1.PersistentVolumeClaim, changed bool) {
	if !slices.ContainsFunc(claim.Status.Conditions, isFailure) {
		return claim, false
	}
	told = claim.DeepCopy()
	told.Status.Conditions = slices.DeleteFunc(told.Status.Conditions, isFailure)
	return told, true
}

func isFailure(c corev1.PersistentVolumeClaimCondition) bool { return c.Type == FailedCondition }
