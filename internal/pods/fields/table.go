package fields

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Role is who reads a specification.
type Role int

const (
	// Server is Monopod's API server, of what a client may create.
	Server Role = iota
	// Agent is Monopod's node agent, of what it is to run, under whatever API server.
	Agent

	roles = iota
)

// verdict is what a role makes of a field that is set.
type verdict struct {
	kind kind
	// accepts says which values ask for nothing that is not so anyway, of a field that is refused; nil: none.
	accepts func(reflect.Value) bool
}

type kind int

const (
	// does: the role does what the API documents.
	does kind = iota
	// refuses: the pod is refused.
	refuses
	// leaves: it is for others to see to, as what only a scheduler reads is no agent's.
	leaves
)

// row is a verdict for each role.
type row [roles]verdict

var (
	honoured = row{}
	refused  = row{{kind: refuses}, {kind: refuses}}
	// onlyAgent: the server refuses it yet.
	onlyAgent = row{Server: {kind: refuses}}
	// refusedHere are fields that an agent leaves to others, and the server refuses, since here there are none.
	refusedHere = row{Server: {kind: refuses}, Agent: left}

	left = verdict{kind: leaves}
)

// unless refuses all values but those that accepts takes.
func unless(accepts func(reflect.Value) bool) verdict { return verdict{refuses, accepts} }

// both is one verdict in both columns.
func both(v verdict) row { return row{v, v} }

// values accepts the given values, and pointers to them.
func values(accepted ...any) func(reflect.Value) bool {
	return func(v reflect.Value) bool {
		for v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		return slices.Contains(accepted, v.Interface())
	}
}

// nothing accepts a pointer to a struct in which nothing is set.
func nothing(v reflect.Value) bool { return v.Elem().IsZero() }

// Refusal is a field, or a value, that is not honoured.
type Refusal struct {
	Path *field.Path
	// Value is the value, where the field itself would do.
	Value string
	// Unless is what would make it honoured, as the end of a sentence; may be empty.
	Unless string
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

// Refused are the fields of a specification that a role does not honour, in the order of the API's structs.
func Refused(role Role, spec *v1.PodSpec, path *field.Path) []Refusal {
	all := byType[role].check(reflect.ValueOf(spec), path)
	return append(all, conditional(role, spec, path)...)
}

// columns is a role's column: for each struct, a verdict for each of its fields, by index.
type columns map[reflect.Type][]verdict

// byType is the table, by role, made once.
var byType = func() (all [roles]columns) {
	for role := range all {
		all[role] = columns{}
		for typ, rows := range table {
			verdicts := make([]verdict, typ.NumField())
			for i := range verdicts {
				verdicts[i] = rows[typ.Field(i).Name][role]
			}
			all[role][typ] = verdicts
		}
	}
	return all
}()

func (c columns) check(v reflect.Value, path *field.Path) (all []Refusal) {
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

func (c columns) checkField(verdict verdict, f reflect.StructField, v reflect.Value, path *field.Path) []Refusal {
	if isUnset(v) || verdict.kind == leaves || verdict.kind == does && !hasFields(v.Kind()) ||
		verdict.kind == refuses && verdict.accepts != nil && verdict.accepts(v) {
		return nil
	}
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name != "" { // an embedded struct's fields belong to the struct around it
		path = path.Child(name)
	}
	if verdict.kind == does {
		return c.check(v, path)
	}
	r := Refusal{Path: path}
	if verdict.accepts != nil {
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
