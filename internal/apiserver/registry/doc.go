// Package registry holds the resources that the API server serves, a folder each.
//
// A resource plugs in with one exported constructor
//
//	func NewStorage(opts generic.RESTOptionsGetter, ...) (..., error)
//
// that gives its storages by their paths below the API group: "configmaps", or "nodes" and "nodes/status". What else
// the resource needs follows as interfaces that it declares itself. Package apiserver calls it and installs what it
// returns.
//
// What a resource knows about its kinds beyond the types of k8s.io/api it exports as a scheme.Hook: AddDefaults,
// AddConversions, AddFields. Package apiserver builds the scheme of them: there is no global one. Where a strategy needs
// a typer only to name a kind, it takes client-go's scheme.
//
// In each folder: storage.go (NewStorage), strategy.go (what may change, and when), validation.go (pure), table.go
// (what kubectl prints).
package registry
