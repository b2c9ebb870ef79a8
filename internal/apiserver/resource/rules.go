package resource

import (
	"context"
	"reflect"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Status says how the status of the objects T changes. Labels, annotations and owners may change with it, as with the resources that upstream has had for
// long: its conformance tests do that.
type Status[T Object] struct {
	// Alone: they do not change with it.
	Alone bool
	// OnCreate: the status that a new object comes with is kept, against the API conventions.
	OnCreate bool
	// Prepare is called before a new status is checked. Update checks it; nil: it may be anything.
	Prepare func(obj, old T)
	Update  func(obj, old T) field.ErrorList
	// Resets are paths of fields, beside spec, that Prepare puts back.
	Resets []string
}

// Rules say how the objects T change through a subresource.
type Rules[T Object] struct {
	// Prepare puts back into obj what old has and this subresource does not change. Update checks the result; nil: it may be anything.
	Prepare func(obj, old T)
	Update  func(obj, old T) field.ErrorList
	// Resets are the paths of the fields, below the object, that Prepare puts back.
	Resets []string
}

// PartREST makes the storage of a subresource through which a part of the objects changes.
func (o Of[T, L]) PartREST(rules Rules[T]) func(*genericregistry.Store) rest.Storage {
	return func(store *genericregistry.Store) rest.Storage {
		return NewPartREST(store, ruled[T, L]{newStrategy(&o), rules})
	}
}

// statusRules are those of the subresource status: all but the status stays as it is.
func (o Of[T, L]) statusRules() Rules[T] {
	var kept [][]int
	typ := reflect.TypeFor[T]().Elem()
	for i := range typ.NumField() {
		switch typ.Field(i).Name {
		case "TypeMeta", "ObjectMeta", "Status":
		default:
			kept = append(kept, []int{i})
		}
	}
	resets := []string{"spec"}
	if o.Status.Alone {
		resets = append(resets, "metadata")
	}
	return Rules[T]{
		Prepare: func(obj, old T) {
			for _, i := range kept {
				at(obj, i).Set(at(old, i))
			}
			if o.Status.Alone {
				metav1.ResetObjectMetaForStatus(obj, old)
			}
			if o.Status.Prepare != nil {
				o.Status.Prepare(obj, old)
			}
		},
		Update: o.Status.Update,
		Resets: append(resets, o.Status.Resets...),
	}
}

// PartStrategy says which part of an object a subresource may change.
type PartStrategy interface {
	rest.RESTUpdateStrategy
	rest.ResetFieldsStrategy
}

// ruled is the strategy of a subresource.
type ruled[T Object, L runtime.Object] struct {
	strategy[T, L]
	rules Rules[T]
}

// PrepareForUpdate implements rest.RESTUpdateStrategy.
func (r ruled[T, L]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	r.rules.Prepare(obj.(T), old.(T))
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (r ruled[T, L]) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaAccessorUpdate(obj.(T), old.(T), field.NewPath("metadata"))
	if r.rules.Update != nil {
		errs = append(errs, r.rules.Update(obj.(T), old.(T))...)
	}
	return errs
}

// WarningsOnUpdate implements rest.RESTUpdateStrategy.
func (ruled[T, L]) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (r ruled[T, L]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.of.resets(r.rules.Resets...)
}
