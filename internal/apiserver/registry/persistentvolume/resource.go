// Package persistentvolume serves the resource persistentvolumes of v1, of which there are none: they are not supported yet.
package persistentvolume

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod.dev/monopod/internal/apiserver/registry/unsupported"
	"monopod.dev/monopod/internal/apiserver/resource"
)

// Resource is the resource persistentvolumes.
func Resource() resource.Resource {
	return unsupported.Of[*corev1.PersistentVolume]{
		Version:  corev1.SchemeGroupVersion,
		Plural:   "persistentvolumes",
		Singular: "persistentvolume",
		Short:    "pv",
		Made:     func() *corev1.PersistentVolume { return &corev1.PersistentVolume{} },
		List:     func() runtime.Object { return &corev1.PersistentVolumeList{Items: []corev1.PersistentVolume{}} },
		Instead:  "use a volume of the kind emptyDir or hostPath",
	}.Resource()
}
