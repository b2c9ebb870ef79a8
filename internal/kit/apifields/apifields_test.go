package apifields_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"

	"monopod.dev/monopod/internal/kit/apifields"
)

var leases = apifields.Table{
	reflect.TypeFor[coordinationv1.Lease](): apifields.All("Spec"),
	reflect.TypeFor[coordinationv1.LeaseSpec](): apifields.All("HolderIdentity", "LeaseDurationSeconds", "AcquireTime", "RenewTime").
		And(apifields.Refused, "Strategy").And(apifields.Unless(apifields.Values("anybody")), "PreferredHolder").And(apifields.Left, "LeaseTransitions"),
}

func TestRefused(t *testing.T) {
	strategy, me, anybody, n := coordinationv1.OldestEmulationVersion, "me", "anybody", int32(3)
	c := leases.Checker()
	got := c.Refused(&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{Strategy: &strategy, PreferredHolder: &me, LeaseTransitions: &n}}, nil)
	var said []string
	for _, r := range got {
		said = append(said, r.String())
	}
	if want := []string{"spec.strategy", "spec.preferredHolder: me"}; !slices.Equal(said, want) {
		t.Errorf("refused %q, want %q", said, want)
	}
	if got := c.Refused(&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{PreferredHolder: &anybody}}, nil); got != nil {
		t.Errorf("refused %v, want nothing", got)
	}
}

func TestHoles(t *testing.T) {
	lease, spec := reflect.TypeFor[coordinationv1.Lease](), reflect.TypeFor[coordinationv1.LeaseSpec]()
	if holes := apifields.Holes([]apifields.Table{leases}, lease); holes != nil {
		t.Errorf("holes %q", holes)
	}
	for want, table := range map[string]apifields.Table{
		"v1.LeaseSpec has no verdicts":                {lease: apifields.All("Spec")},
		"v1.LeaseSpec.Strategy has no verdict":        leases.With(apifields.Table{spec: apifields.All("HolderIdentity")}),
		"v1.LeaseSpec has no field Color":             leases.With(apifields.Table{spec: apifields.All("Color")}),
		"the verdicts of v1.LeaseList are never used": leases.With(apifields.Table{reflect.TypeFor[coordinationv1.LeaseList](): nil}),
		"the verdicts of v1.LeaseSpec are never used": leases.With(apifields.Table{lease: apifields.Fields{}.And(apifields.Left, "Spec")}),
		"v1.Lease.Spec has no verdict":                {lease: apifields.All()},
	} {
		if holes := apifields.Holes([]apifields.Table{table}, lease); !slices.Contains(holes, want) {
			t.Errorf("holes:\n%s\nwant:\n%s", strings.Join(holes, "\n"), fmt.Sprint(want))
		}
	}
}

func TestRemedy(t *testing.T) {
	table := apifields.Table{reflect.TypeFor[coordinationv1.LeaseSpec](): apifields.Fields{}.And(apifields.But("ask its holder"), "PreferredHolder")}
	got := table.Checker().Refused(&coordinationv1.LeaseSpec{PreferredHolder: new("me")}, nil)
	if len(got) != 1 || got[0].Remedy != "ask its holder" || got[0].String() != "preferredHolder" {
		t.Errorf("refused %+v, want the field and its remedy", got)
	}
}
