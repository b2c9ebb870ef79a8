package resource

import (
	"context"
	"maps"
	"reflect"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Strategy rules what is created, updated and deleted. One that implements rest.ResetFieldsStrategy says which fields it resets, too.
type Strategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
	rest.RESTDeleteStrategy
}

// Plain is what strategies have in common; one that is written by hand embeds it and overrides what is different for it. It gives no warnings, changes
// nothing before an object is stored, lets nobody create by an update, and takes updates without resourceVersion.
type Plain struct {
	runtime.ObjectTyper
	names.NameGenerator
}

// NewPlain makes a Plain. Its typer only names kinds in error messages, for which client-go's scheme is enough.
func NewPlain() Plain {
	return Plain{ObjectTyper: clientscheme.Scheme, NameGenerator: names.SimpleNameGenerator}
}

// WarningsOnCreate implements rest.RESTCreateStrategy.
func (Plain) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }

// WarningsOnUpdate implements rest.RESTUpdateStrategy.
func (Plain) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string { return nil }

// Canonicalize implements rest.RESTCreateStrategy.
func (Plain) Canonicalize(runtime.Object) {}

// AllowCreateOnUpdate implements rest.RESTUpdateStrategy.
func (Plain) AllowCreateOnUpdate(context.Context) bool { return false }

// AllowUnconditionalUpdate implements rest.RESTUpdateStrategy.
func (Plain) AllowUnconditionalUpdate(context.Context) bool { return true }

// PrepareForCreate implements rest.RESTCreateStrategy.
func (Plain) PrepareForCreate(context.Context, runtime.Object) {}

// PrepareForUpdate implements rest.RESTUpdateStrategy.
func (Plain) PrepareForUpdate(context.Context, runtime.Object, runtime.Object) {}

// strategy rules the objects of a resource by its declaration.
type strategy[T Object, L runtime.Object] struct {
	Plain
	of *Of[T, L]
	// spec and status are where these fields are in T; nil: it has none.
	spec, status []int
}

var (
	_ rest.ResetFieldsStrategy             = strategy[*metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList]{}
	_ rest.GarbageCollectionDeleteStrategy = strategy[*metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList]{}
)

func newStrategy[T Object, L runtime.Object](of *Of[T, L]) strategy[T, L] {
	of.checked = of.Honours.Checker()
	return strategy[T, L]{Plain: NewPlain(), of: of, spec: index[T]("Spec"), status: index[T]("Status")}
}

// index is where a field of a struct is, for a pointer to which T stands.
func index[T any](name string) []int {
	f, _ := reflect.TypeFor[T]().Elem().FieldByName(name)
	return f.Index
}

// at is the field of an object.
func at(obj any, index []int) reflect.Value { return reflect.ValueOf(obj).Elem().FieldByIndex(index) }

// NamespaceScoped implements rest.RESTCreateStrategy.
func (s strategy[T, L]) NamespaceScoped() bool { return s.of.Namespaced }

// PrepareForCreate implements rest.RESTCreateStrategy.
func (s strategy[T, L]) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	typed := obj.(T)
	if st := s.of.Status; st != nil && !st.OnCreate {
		at(typed, s.status).SetZero()
	}
	if s.of.Generation {
		typed.SetGeneration(1)
	}
	if who, ok := genericrequest.UserFrom(ctx); ok && s.of.Made != nil {
		s.of.Made(typed, who)
	}
	if s.of.Prepare != nil {
		s.of.Prepare(typed)
	}
}

// Validate implements rest.RESTCreateStrategy.
func (s strategy[T, L]) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return s.of.Check(obj.(T))
}

// WarningsOnCreate implements rest.RESTCreateStrategy.
func (s strategy[T, L]) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	if s.of.Warn == nil {
		return nil
	}
	return s.of.Warn(obj.(T))
}

// WarningsOnUpdate implements rest.RESTUpdateStrategy.
func (s strategy[T, L]) WarningsOnUpdate(_ context.Context, obj, old runtime.Object) []string {
	if s.of.WarnUpdate == nil {
		return nil
	}
	return s.of.WarnUpdate(obj.(T), old.(T))
}

// DefaultGarbageCollectionPolicy implements rest.GarbageCollectionDeleteStrategy.
func (s strategy[T, L]) DefaultGarbageCollectionPolicy(context.Context) rest.GarbageCollectionPolicy {
	if s.of.Orphans {
		return rest.OrphanDependents
	}
	return rest.DeleteDependents
}

// AllowCreateOnUpdate implements rest.RESTUpdateStrategy.
func (s strategy[T, L]) AllowCreateOnUpdate(context.Context) bool { return s.of.CreateOnUpdate }

// AllowUnconditionalUpdate implements rest.RESTUpdateStrategy.
func (s strategy[T, L]) AllowUnconditionalUpdate(context.Context) bool { return !s.of.NamedUpdate }

// PrepareForUpdate implements rest.RESTUpdateStrategy.
func (s strategy[T, L]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	typed, was := obj.(T), old.(T)
	if s.of.Status != nil {
		at(typed, s.status).Set(at(was, s.status))
	}
	if s.of.PrepareUpdate != nil {
		s.of.PrepareUpdate(typed, was)
	}
	if s.of.Generation {
		typed.SetGeneration(was.GetGeneration())
		if !apiequality.Semantic.DeepEqual(at(typed, s.spec).Interface(), at(was, s.spec).Interface()) {
			typed.SetGeneration(was.GetGeneration() + 1)
		}
	}
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (s strategy[T, L]) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return s.of.CheckUpdate(obj.(T), old.(T))
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (s strategy[T, L]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	if s.of.Status == nil {
		return nil
	}
	return s.of.resets("status")
}

// resets names fields that are reset in whatever version they are written.
func (o *Of[T, L]) resets(names ...string) map[fieldpath.APIVersion]*fieldpath.Set {
	all := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, at := range o.Served() {
		maps.Copy(all, Reset(fieldpath.APIVersion(at.GroupVersion().String()), names...))
	}
	return all
}

// Reset names fields of a version that a strategy resets, as paths below the object: Reset("v1", "status", "metadata.labels").
func Reset(version fieldpath.APIVersion, names ...string) map[fieldpath.APIVersion]*fieldpath.Set {
	set := fieldpath.NewSet()
	for _, n := range names {
		var path fieldpath.Path
		for _, name := range strings.Split(n, ".") {
			path = append(path, fieldpath.PathElement{FieldName: &name})
		}
		set.Insert(path)
	}
	return map[fieldpath.APIVersion]*fieldpath.Set{version: set}
}
