package event

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

// strategy rules the creation, the update and the deletion of events. Which rules apply depends on the API group of the
// request: core/v1 has always taken almost anything, events.k8s.io/v1 is strict.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
}

var (
	_ rest.RESTCreateStrategy = strategy{}
	_ rest.RESTUpdateStrategy = strategy{}
	_ rest.RESTDeleteStrategy = strategy{}
)

func newStrategy() strategy {
	// The typer only names the kind in error messages, which is what client-go's scheme is enough for.
	return strategy{ObjectTyper: clientscheme.Scheme, NameGenerator: names.SimpleNameGenerator}
}

// NamespaceScoped implements rest.RESTCreateStrategy.
func (strategy) NamespaceScoped() bool { return true }

// PrepareForCreate implements rest.RESTCreateStrategy.
func (strategy) PrepareForCreate(context.Context, runtime.Object) {}

// Validate implements rest.RESTCreateStrategy.
func (strategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return validateCreate(obj.(*corev1.Event), isStrict(ctx))
}

// WarningsOnCreate implements rest.RESTCreateStrategy.
func (strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }

// Canonicalize implements rest.RESTCreateStrategy.
func (strategy) Canonicalize(runtime.Object) {}

// AllowCreateOnUpdate implements rest.RESTUpdateStrategy: a recorder may PUT an event whose hour is over.
func (strategy) AllowCreateOnUpdate(context.Context) bool { return true }

// AllowUnconditionalUpdate implements rest.RESTUpdateStrategy.
func (strategy) AllowUnconditionalUpdate(context.Context) bool { return true }

// PrepareForUpdate implements rest.RESTUpdateStrategy.
func (strategy) PrepareForUpdate(context.Context, runtime.Object, runtime.Object) {}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (strategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return validateUpdate(obj.(*corev1.Event), old.(*corev1.Event), isStrict(ctx))
}

// WarningsOnUpdate implements rest.RESTUpdateStrategy.
func (strategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string { return nil }

func isStrict(ctx context.Context) bool {
	info, ok := genericrequest.RequestInfoFrom(ctx)
	return ok && info.APIGroup == eventsv1.GroupName
}
