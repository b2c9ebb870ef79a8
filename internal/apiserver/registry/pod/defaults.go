package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod.dev/monopod/internal/pods/defaults"
)

// AddDefaults registers the defaulting of pods with a scheme: what is decoded through it, from a client or from the
// store, has every default that core/v1 documents for the fields that are honoured.
func AddDefaults(scheme *runtime.Scheme) error {
	scheme.AddTypeDefaultingFunc(&corev1.Pod{}, func(obj any) { defaults.Pod(obj.(*corev1.Pod)) })
	scheme.AddTypeDefaultingFunc(&corev1.PodList{}, func(obj any) {
		list := obj.(*corev1.PodList)
		for i := range list.Items {
			defaults.Pod(&list.Items[i])
		}
	})
	return nil
}
