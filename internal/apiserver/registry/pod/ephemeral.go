package pod

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
)

// EphemeralContainersREST is the storage of pods/ephemeralcontainers: it shows the pod, and refuses changes, because agents do not run such containers yet.
// It is there so that `kubectl debug POD` says so, and what to do instead.
type EphemeralContainersREST struct{ store *genericregistry.Store }

var _ rest.Patcher = &EphemeralContainersREST{}

// New implements rest.Storage.
func (*EphemeralContainersREST) New() runtime.Object { return &corev1.Pod{} }

// Destroy implements rest.Storage. REST owns the store and destroys it.
func (*EphemeralContainersREST) Destroy() {}

// Get implements rest.Getter.
func (r *EphemeralContainersREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, options)
}

// Update implements rest.Updater.
func (r *EphemeralContainersREST) Update(ctx context.Context, name string, _ rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc, _ rest.ValidateObjectUpdateFunc,
	_ bool, _ *metav1.UpdateOptions) (runtime.Object, bool, error) {
	if _, err := r.store.Get(ctx, name, &metav1.GetOptions{}); err != nil {
		return nil, false, err
	}
	return nil, false, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), name, field.ErrorList{field.Forbidden(
		field.NewPath("spec", "ephemeralContainers"), fmt.Sprintf("this version of Monopod runs no ephemeral containers; use `kubectl exec -it %[1]s -- COMMAND`, or "+
			"debug a copy of the pod: `kubectl debug %[1]s --copy-to=%[1]s-debug --image=IMAGE -it`", name))})
}
