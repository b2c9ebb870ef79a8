// Package registry holds the resources that the API server serves, a folder each.
//
// A folder exports one function, Resource, that gives a resource.Of: what is particular to the resource. What it needs of others it takes as arguments,
// as interfaces that it declares itself. Package apiserver has the list of all resources and installs them.
//
// In each folder: resource.go (the declaration), validation.go (pure), table.go (what kubectl prints, where that takes more than a line a column). What
// is unlike others follows in files of its own. docs/recipes/add-a-resource.md shows how one is added.
package registry
