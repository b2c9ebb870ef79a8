// Package base is what the strategies of most resources have in common; a resource embeds Strategy and overrides what is
// different for it.
package base

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage/names"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

// Strategy gives no warnings, changes nothing before an object is stored, lets nobody create by PUT, and takes updates
// without resourceVersion.
type Strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
}

// New makes a Strategy. Its typer only names kinds in error messages, which is what client-go's scheme is enough for.
func New() Strategy {
	return Strategy{ObjectTyper: clientscheme.Scheme, NameGenerator: names.SimpleNameGenerator}
}

// WarningsOnCreate implements rest.RESTCreateStrategy.
func (Strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }

// WarningsOnUpdate implements rest.RESTUpdateStrategy.
func (Strategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

// Canonicalize implements rest.RESTCreateStrategy.
func (Strategy) Canonicalize(runtime.Object) {}

// AllowCreateOnUpdate implements rest.RESTUpdateStrategy.
func (Strategy) AllowCreateOnUpdate(context.Context) bool { return false }

// AllowUnconditionalUpdate implements rest.RESTUpdateStrategy.
func (Strategy) AllowUnconditionalUpdate(context.Context) bool { return true }

// PrepareForCreate implements rest.RESTCreateStrategy.
func (Strategy) PrepareForCreate(context.Context, runtime.Object) {}

// PrepareForUpdate implements rest.RESTUpdateStrategy.
func (Strategy) PrepareForUpdate(context.Context, runtime.Object, runtime.Object) {}
