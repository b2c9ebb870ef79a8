package pods

import storagev1 "k8s.io/api/storage/v1"

// The annotations that make a StorageClass the one of claims that name none; the second one is of old manifests.
const (
	DefaultClassAnnotation     = "storageclass.kubernetes.io/is-default-class"
	betaDefaultClassAnnotation = "storageclass.beta.kubernetes.io/is-default-class"
)

// DefaultStorageClass is the class of claims that name none: of those that are marked so the newest, of equally new ones the first by its name. Nil: there is none.
func DefaultStorageClass(classes []*storagev1.StorageClass) (best *storagev1.StorageClass) {
	for _, c := range classes {
		marked := c.Annotations[DefaultClassAnnotation] == "true" || c.Annotations[betaDefaultClassAnnotation] == "true"
		if marked && (best == nil || c.CreationTimestamp.After(best.CreationTimestamp.Time) ||
			c.CreationTimestamp.Equal(&best.CreationTimestamp) && c.Name < best.Name) {
			best = c
		}
	}
	return best
}
