// Package registry holds the resources that the API server serves, a folder each.
//
// A folder exports one function, Resource, that gives a resource.Of: what is particular to the resource. Subresources that need other resources, or lead elsewhere,
// are functions of their own (ProxyTo, Elsewhere), which take what they need as arguments, as interfaces that they declare themselves. Package apiserver has the list of
// all resources, opens each after those that it needs, and installs them.
//
// In each folder: resource.go (the declaration), validation.go (pure), table.go (what kubectl prints, where that takes more than a line a column). What
// is unlike others follows in files of its own. docs/recipes/add-a-resource.md shows how one is added.
package registry
