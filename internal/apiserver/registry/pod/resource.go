package pod

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/resource"
)

// Resource is the resource pods.
func Resource(cfg Config) resource.Resource {
	return resource.Made{
		At:     []schema.GroupVersionResource{corev1.SchemeGroupVersion.WithResource("pods")},
		Scheme: AddToScheme,
		Storages: func(options generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
			s, err := NewStorage(options, cfg)
			return s.Map(), err
		},
	}
}

// AddToScheme adds to a scheme that knows core/v1 all that serving pods needs: defaults, the fields that can be
// selected by, and the options of the subresources.
func AddToScheme(scheme *runtime.Scheme) error {
	return errors.Join(AddDefaults(scheme), AddFieldLabelConversion(scheme), AddOptions(scheme))
}
