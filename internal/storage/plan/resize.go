package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Resizing is a claim that says that its volume is about to grow. changed: it is another one than claim, which is not touched.
func Resizing(claim *corev1.PersistentVolumeClaim, now metav1.Time) (told *corev1.PersistentVolumeClaim, changed bool) {
	wants := Requested(claim)
	allocated := claim.Status.AllocatedResources[corev1.ResourceStorage]
	if allocated.Cmp(wants) == 0 && claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] == corev1.PersistentVolumeClaimControllerResizeInProgress {
		return claim, false
	}
	told = claim.DeepCopy()
	s := &told.Status
	if s.AllocatedResources == nil {
		s.AllocatedResources = corev1.ResourceList{}
	}
	s.AllocatedResources[corev1.ResourceStorage] = wants
	if s.AllocatedResourceStatuses == nil {
		s.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{}
	}
	s.AllocatedResourceStatuses[corev1.ResourceStorage] = corev1.PersistentVolumeClaimControllerResizeInProgress
	s.Conditions = append(withoutResizing(s.Conditions), corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimResizing, Status: corev1.ConditionTrue, LastTransitionTime: now,
	})
	return told, true
}

// Resized is a claim whose volume has grown.
func Resized(claim *corev1.PersistentVolumeClaim, to resource.Quantity) *corev1.PersistentVolumeClaim {
	now := claim.DeepCopy()
	s := &now.Status
	if s.Capacity == nil {
		s.Capacity = corev1.ResourceList{}
	}
	s.Capacity[corev1.ResourceStorage] = to
	delete(s.AllocatedResourceStatuses, corev1.ResourceStorage)
	if len(s.AllocatedResourceStatuses) == 0 {
		s.AllocatedResourceStatuses = nil
	}
	s.Conditions = withoutResizing(s.Conditions)
	return now
}

// withoutResizing are the conditions that are not about a growth.
func withoutResizing(all []corev1.PersistentVolumeClaimCondition) []corev1.PersistentVolumeClaimCondition {
	return slices.DeleteFunc(slices.Clone(all), func(c corev1.PersistentVolumeClaimCondition) bool {
		switch c.Type {
		case corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
			corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError:
			return true
		}
		return false
	})
}
