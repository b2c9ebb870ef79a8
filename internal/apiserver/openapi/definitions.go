package openapi

import (
	"strings"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Definitions are those of the types of all API groups.
func Definitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	all := map[string]common.OpenAPIDefinition{}
	byModel := func(name string) spec.Ref { return ref(model(name)) }
	for _, of := range generated() {
		for name, definition := range of(byModel) {
			for i, dependency := range definition.Dependencies {
				definition.Dependencies[i] = model(dependency)
			}
			all[name] = definition
		}
	}
	return all
}

// model is the name of a type in OpenAPI. Types of another package of definitions are named by their Go packages there.
func model(name string) string {
	if strings.Contains(name, "/") {
		return util.ToRESTFriendlyName(name)
	}
	return name
}
