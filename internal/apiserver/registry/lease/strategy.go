package lease

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/registry/base"
)

type strategy struct {
	base.Checked[*coordinationv1.Lease]
}

var (
	_ rest.RESTCreateStrategy = strategy{}
	_ rest.RESTUpdateStrategy = strategy{}
)

func newStrategy() strategy {
	return strategy{base.Checked[*coordinationv1.Lease]{Strategy: base.New(), Namespaced: true, OnCreate: validate, OnUpdate: validateUpdate}}
}

// AllowCreateOnUpdate implements rest.RESTUpdateStrategy: a holder may PUT its lease without asking first.
func (strategy) AllowCreateOnUpdate(context.Context) bool { return true }

// AllowUnconditionalUpdate implements rest.RESTUpdateStrategy: a lease is a lock, so an update names what it replaces.
func (strategy) AllowUnconditionalUpdate(context.Context) bool { return false }
