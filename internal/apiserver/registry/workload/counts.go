package workload

import (
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Number is a number of a specification or a status, by the name of its field.
type Number struct {
	Field string
	Value int64
}

// Of is the number in a field.
func Of[I int32 | int64](name string, value I) Number { return Number{name, int64(value)} }

// Optional is the number in a field that may be left out, which is as good as 0.
func Optional(name string, value *int32) Number {
	if value == nil {
		return Number{Field: name}
	}
	return Of(name, *value)
}

// NotNegative checks numbers below path.
func NotNegative(path *field.Path, numbers ...Number) (errs field.ErrorList) {
	for _, n := range numbers {
		errs = append(errs, apivalidation.ValidateNonnegativeField(n.Value, path.Child(n.Field))...)
	}
	return errs
}

// Counts are the numbers of a status.
type Counts struct {
	// Replicas is how many pods there are, Ready and Available how many of them are that, Parts are other parts of them.
	Replicas, Ready, Available int32
	Parts                      []Number
	// Others are those that are not about these pods.
	Others []Number
}

// Validate tells what is wrong with the numbers of the status at path.
func (c Counts) Validate(path *field.Path) field.ErrorList {
	const notMore = "cannot be greater than status.replicas"
	ready, available := Of("readyReplicas", c.Ready), Of("availableReplicas", c.Available)
	parts := append([]Number{ready, available}, c.Parts...)
	errs := NotNegative(path, Of("replicas", c.Replicas))
	errs = append(errs, NotNegative(path, parts...)...)
	errs = append(errs, NotNegative(path, c.Others...)...)
	for _, part := range parts {
		if part.Value > int64(c.Replicas) {
			errs = append(errs, field.Invalid(path.Child(part.Field), part.Value, notMore))
		}
	}
	if available.Value > ready.Value {
		errs = append(errs, field.Invalid(path.Child(available.Field), available.Value, "cannot be greater than status.readyReplicas"))
	}
	return errs
}

// NotDecremented checks the count of collisions in the status at path: names that were taken are not tried again.
func NotDecremented(count, old *int32, path *field.Path) field.ErrorList {
	is, was := Optional("collisionCount", count), Optional("collisionCount", old)
	if is.Value < was.Value || count == nil && old != nil {
		return field.ErrorList{field.Invalid(path.Child(is.Field), is.Value, "cannot be decremented")}
	}
	return nil
}
