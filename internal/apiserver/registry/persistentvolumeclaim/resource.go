// Package persistentvolumeclaim serves the resource persistentvolumeclaims of v1, of which there are none: they are not supported yet.
package persistentvolumeclaim

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod.dev/monopod/internal/apiserver/registry/unsupported"
	"monopod.dev/monopod/internal/apiserver/resource"
)

// Resource is the resource persistentvolumeclaims.
func Resource() resource.Resource {
	return unsupported.Of[*corev1.PersistentVolumeClaim]{
		Version:    corev1.SchemeGroupVersion,
		Plural:     "persistentvolumeclaims",
		Singular:   "persistentvolumeclaim",
		Short:      "pvc",
		Namespaced: true,
		Made:       func() *corev1.PersistentVolumeClaim { return &corev1.PersistentVolumeClaim{} },
		List: func() runtime.Object {
			return &corev1.PersistentVolumeClaimList{Items: []corev1.PersistentVolumeClaim{}}
		},
		Instead:   "use a volume of the kind emptyDir or hostPath",
		ReadBy:    resource.Viewer,
		WrittenBy: resource.Editor,
	}.Resource()
}
