package fields

import (
	"reflect"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/kit/apifields"
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
type verdict = apifields.Verdict

const (
	// refuses: the pod is refused.
	refuses = apifields.Refuses
	// leaves: it is for others to see to, as what only a scheduler reads is no agent's.
	leaves = apifields.Leaves
)

// row is a verdict for each role.
type row [roles]verdict

var (
	honoured = row{}
	refused  = row{{Kind: refuses}, {Kind: refuses}}
	// refusedHere are fields that an agent leaves to others, and the server refuses, since here there are none.
	refusedHere = row{Server: {Kind: refuses}, Agent: left}

	left = apifields.Left
)

// unless refuses all values but those that accepts takes.
func unless(accepts func(reflect.Value) bool) verdict { return apifields.Unless(accepts) }

// both is one verdict in both columns.
func both(v verdict) row { return row{v, v} }

// values accepts the given values, and pointers to them.
func values(accepted ...any) func(reflect.Value) bool { return apifields.Values(accepted...) }

// Refusal is a field, or a value, that is not honoured.
type Refusal = apifields.Refusal

// Refused are the fields of a specification that a role does not honour, in the order of the API's structs.
func Refused(role Role, spec *v1.PodSpec, path *field.Path) []Refusal {
	all := byType[role].Refused(spec, path)
	if role == Agent {
		all = append(all, unknownSources(spec, path)...)
	}
	return all
}

// column is a role's.
func column(role Role) apifields.Table {
	all := apifields.Table{}
	for typ, rows := range table {
		all[typ] = apifields.Fields{}
		for name, row := range rows {
			all[typ][name] = row[role]
		}
	}
	return all
}

// byType is the table, by role, made once.
var byType = func() (all [roles]apifields.Checker) {
	for role := range all {
		all[role] = column(Role(role)).Checker()
	}
	return all
}()
