package event

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/resource"
)

// strategy rules the creation, the update and the deletion of events. Which rules apply depends on the API group of the
// request: core/v1 has always taken almost anything, events.k8s.io/v1 is strict.
type strategy struct{ resource.Plain }

var (
	_ rest.RESTCreateStrategy              = strategy{}
	_ rest.RESTUpdateStrategy              = strategy{}
	_ rest.RESTDeleteStrategy              = strategy{}
	_ rest.GarbageCollectionDeleteStrategy = strategy{}
)

// DefaultGarbageCollectionPolicy implements rest.GarbageCollectionDeleteStrategy: garbage collectors do not watch events, so nobody would take a finalizer
// off again.
func (strategy) DefaultGarbageCollectionPolicy(context.Context) rest.GarbageCollectionPolicy {
	return rest.Unsupported
}

// NamespaceScoped implements rest.RESTCreateStrategy.
func (strategy) NamespaceScoped() bool { return true }

// Validate implements rest.RESTCreateStrategy.
func (strategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return validateCreate(obj.(*corev1.Event), isStrict(ctx))
}

// AllowCreateOnUpdate implements rest.RESTUpdateStrategy: a recorder may PUT an event whose hour is over.
func (strategy) AllowCreateOnUpdate(context.Context) bool { return true }

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (strategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return validateUpdate(obj.(*corev1.Event), old.(*corev1.Event), isStrict(ctx))
}

func isStrict(ctx context.Context) bool {
	info, ok := genericrequest.RequestInfoFrom(ctx)
	return ok && info.APIGroup == eventsv1.GroupName
}
