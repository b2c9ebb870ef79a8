package resource

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/kit/apifields"
)

// notSupported is what a client is told of a field, or a value, that Monopod does not honour.
const notSupported = "not supported by Monopod yet"

// Forbid tells a client of what is not honoured.
func Forbid(refused []apifields.Refusal) (errs field.ErrorList) {
	for _, r := range refused {
		message := notSupported
		if r.Unless != "" {
			message += " unless " + r.Unless
		}
		if r.Remedy != "" {
			message += ": " + r.Remedy
		}
		errs = append(errs, field.Forbidden(r.Path, message))
	}
	return errs
}

// refused are the fields of an object that are not honoured.
func (o Of[T, L]) refused(obj T) []apifields.Refusal {
	checker := o.checked
	if checker == nil {
		checker = o.Honours.Checker()
	}
	return checker.Refused(obj, nil)
}

// added are the refusals that were not there before: an object that came in when a field was honoured, or is of a store that others have written, can
// still be changed.
func added(refused, before []apifields.Refusal) []apifields.Refusal {
	if len(refused) == 0 {
		return nil
	}
	return slices.DeleteFunc(refused, func(r apifields.Refusal) bool {
		return slices.ContainsFunc(before, func(b apifields.Refusal) bool { return b.String() == r.String() })
	})
}

// Holes tells which fields of the resource's objects have no verdict in Honours.
func (o Of[T, L]) Holes() []string {
	if o.Strategy != nil && o.Honours == nil {
		return nil // its own rules say
	}
	return apifields.Holes([]apifields.Table{o.Honours}, reflect.TypeFor[T]())
}
