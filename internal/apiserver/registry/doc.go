// Package registry holds the resources that the API server serves, a folder each.
//
// A resource plugs in with one exported constructor
//
//	func NewStorage(optsGetter generic.RESTOptionsGetter, typer runtime.ObjectTyper, ...) (map[string]rest.Storage, error)
//
// whose keys are the paths below the API group: "configmaps", or "pods" and "pods/status". typer is the API scheme
// (strategies embed it); what else the resource needs follows as interfaces that it declares itself. Package apiserver
// calls it and installs what it returns.
//
// What a resource knows about its kinds beyond the types of k8s.io/api it exports as a scheme.Hook: AddDefaults for
// defaults, AddConversions for conversions. No resource imports another, nor package scheme's result: there is no global
// scheme.
//
// In each folder: storage.go (NewStorage), strategy.go (what may change, and when), validation.go (pure), table.go
// (what kubectl prints).
package registry
