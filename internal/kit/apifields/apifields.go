// Package apifields says of the fields of API types what is made of them: they are honoured, or refused, or left to others. Nobody ignores a field in
// silence: what is not honoured is refused by name.
//
// A Table has a verdict for every field of every type that it names. Table.Holes holds it against the Go types, for a test: a field that a newer version
// of the API adds has no verdict until somebody decides.
package apifields

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Kind is what is made of a field that is set.
type Kind int

const (
	// Does what the API documents. The fields below it have verdicts of their own, where it is a struct of an API group.
	Does Kind = iota
	// Refuses the object.
	Refuses
	// Leaves the field, and all below it, to others.
	Leaves
)

// Verdict is what is made of a field.
type Verdict struct {
	Kind Kind
	// Accepts says which values ask for nothing that is not so anyway, of a field that is refused; nil: none.
	Accepts func(reflect.Value) bool
	// Remedy is what can be done instead of setting a field that is refused, for who is told so; may be empty.
	Remedy string
}

// The verdicts that need nothing more.
var (
	Honoured = Verdict{}
	Refused  = Verdict{Kind: Refuses}
	Left     = Verdict{Kind: Leaves}
)

// Unless refuses all values but those that accepts takes.
func Unless(accepts func(reflect.Value) bool) Verdict {
	return Verdict{Kind: Refuses, Accepts: accepts}
}

// But refuses, and tells what can be done instead.
func But(remedy string) Verdict { return Verdict{Kind: Refuses, Remedy: remedy} }

// Values accepts the given values, and pointers to them.
func Values(accepted ...any) func(reflect.Value) bool {
	return func(v reflect.Value) bool {
		for v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		return slices.Contains(accepted, v.Interface())
	}
}

// Fields are the verdicts of a struct, by the names of its fields in Go.
type Fields map[string]Verdict

// All are fields that are honoured.
func All(names ...string) Fields { return Fields{}.And(Honoured, names...) }

// And gives more fields a verdict.
func (f Fields) And(v Verdict, names ...string) Fields {
	for _, name := range names {
		f[name] = v
	}
	return f
}

// Table has the verdicts of structs.
type Table map[reflect.Type]Fields

// With is the table with those of others.
func (t Table) With(more ...Table) Table {
	all := maps.Clone(t)
	for _, m := range more {
		maps.Copy(all, m)
	}
	return all
}

// Refusal is a field, or a value, that is not honoured.
type Refusal struct {
	Path *field.Path
	// Value is the value, where the field itself would do.
	Value string
	// Unless is what would make it honoured, as the end of a sentence; may be empty.
	Unless string
	// Remedy is that of the verdict.
	Remedy string
}

// String names the field, and what is wrong about it.
func (r Refusal) String() string {
	s := r.Path.String()
	if r.Value != "" {
		s += ": " + r.Value
	}
	if r.Unless != "" {
		s += " (unless " + r.Unless + ")"
	}
	return s
}

// Checker is a table as it is asked quickly: for each struct a verdict for each of its fields, by index.
type Checker map[reflect.Type][]Verdict

// Checker makes the table's.
func (t Table) Checker() Checker {
	c := Checker{}
	for typ, fields := range t {
		verdicts := make([]Verdict, typ.NumField())
		for i := range verdicts {
			verdicts[i] = fields[typ.Field(i).Name]
		}
		c[typ] = verdicts
	}
	return c
}

// Refused are the fields of an object that are not honoured, in the order of the API's structs. path is the object's; nil: its fields are at the top.
func (c Checker) Refused(obj any, path *field.Path) []Refusal {
	return c.check(reflect.ValueOf(obj), path)
}

func (c Checker) check(v reflect.Value, path *field.Path) (all []Refusal) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return c.check(v.Elem(), path)
		}
	case reflect.Slice:
		if !hasFields(v.Type().Elem().Kind()) {
			return nil
		}
		for i := range v.Len() {
			all = append(all, c.check(v.Index(i), path.Index(i))...)
		}
	case reflect.Struct:
		for i, verdict := range c[v.Type()] { // none: a quantity, a time, no struct of fields
			all = append(all, c.checkField(verdict, v.Type().Field(i), v.Field(i), path)...)
		}
	}
	return all
}

func (c Checker) checkField(verdict Verdict, f reflect.StructField, v reflect.Value, path *field.Path) []Refusal {
	if isUnset(v) || verdict.Kind == Leaves || verdict.Kind == Does && !hasFields(v.Kind()) ||
		verdict.Kind == Refuses && verdict.Accepts != nil && verdict.Accepts(v) {
		return nil
	}
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name != "" { // an embedded struct's fields belong to the struct around it
		path = path.Child(name)
	}
	if verdict.Kind == Does {
		return c.check(v, path)
	}
	r := Refusal{Path: path, Remedy: verdict.Remedy}
	if verdict.Accepts != nil {
		r.Value = scalar(v)
	}
	return []Refusal{r}
}

// scalar writes a value that is short enough for a message; of a struct it is empty.
func scalar(v reflect.Value) string {
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() == reflect.Struct {
		return ""
	}
	return fmt.Sprint(v.Interface())
}

// hasFields reports whether fields may be found below a value of the kind.
func hasFields(k reflect.Kind) bool {
	return k == reflect.Struct || k == reflect.Pointer || k == reflect.Slice
}

// isUnset treats an empty list or map as one that was left out, as the API does.
func isUnset(v reflect.Value) bool {
	if v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
		return v.Len() == 0
	}
	return v.IsZero()
}
