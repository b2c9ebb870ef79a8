package scheme

import (
	"maps"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// Packages are the Go packages of a group's types.
type Packages struct {
	// Name is the group's in Go, which its versions have in common: core, apps, rbac.
	Name string
	// Go are the import paths, sorted: one of each version.
	Go []string
}

// PackagesOf are those of all groups that are served, sorted by name. What follows from types alone (OpenAPI definitions) is made of them.
func PackagesOf() ([]Packages, error) {
	wire := map[string]map[string]bool{}
	for _, g := range groups() {
		s := runtime.NewScheme()
		if err := g.add(s); err != nil {
			return nil, err
		}
		for _, of := range s.KnownTypes(g.GroupVersion) {
			// The kinds of the meta group are in every version.
			if strings.HasPrefix(of.PkgPath(), "k8s.io/apimachinery/") {
				continue
			}
			name := path.Base(path.Dir(of.PkgPath()))
			if wire[name] == nil {
				wire[name] = map[string]bool{}
			}
			wire[name][of.PkgPath()] = true
		}
	}
	var all []Packages
	for _, name := range slices.Sorted(maps.Keys(wire)) {
		all = append(all, Packages{name, slices.Sorted(maps.Keys(wire[name]))})
	}
	return all, nil
}
