package openapi

import (
	"strings"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"monopod.dev/monopod/internal/apiserver/openapi/apps"
	"monopod.dev/monopod/internal/apiserver/openapi/authentication"
	"monopod.dev/monopod/internal/apiserver/openapi/authorization"
	"monopod.dev/monopod/internal/apiserver/openapi/autoscaling"
	"monopod.dev/monopod/internal/apiserver/openapi/batch"
	"monopod.dev/monopod/internal/apiserver/openapi/certificates"
	"monopod.dev/monopod/internal/apiserver/openapi/coordination"
	"monopod.dev/monopod/internal/apiserver/openapi/core"
	"monopod.dev/monopod/internal/apiserver/openapi/discovery"
	"monopod.dev/monopod/internal/apiserver/openapi/events"
	"monopod.dev/monopod/internal/apiserver/openapi/meta"
	"monopod.dev/monopod/internal/apiserver/openapi/metrics"
	"monopod.dev/monopod/internal/apiserver/openapi/networking"
	"monopod.dev/monopod/internal/apiserver/openapi/node"
	"monopod.dev/monopod/internal/apiserver/openapi/policy"
	"monopod.dev/monopod/internal/apiserver/openapi/rbac"
	"monopod.dev/monopod/internal/apiserver/openapi/scheduling"
)

// Definitions are those of the types of all API groups.
func Definitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	all := map[string]common.OpenAPIDefinition{}
	byModel := func(name string) spec.Ref { return ref(model(name)) }
	for _, of := range []common.GetOpenAPIDefinitions{
		apps.GetOpenAPIDefinitions,
		authentication.GetOpenAPIDefinitions,
		authorization.GetOpenAPIDefinitions,
		autoscaling.GetOpenAPIDefinitions,
		batch.GetOpenAPIDefinitions,
		certificates.GetOpenAPIDefinitions,
		coordination.GetOpenAPIDefinitions,
		core.GetOpenAPIDefinitions,
		discovery.GetOpenAPIDefinitions,
		events.GetOpenAPIDefinitions,
		meta.GetOpenAPIDefinitions,
		metrics.GetOpenAPIDefinitions,
		networking.GetOpenAPIDefinitions,
		policy.GetOpenAPIDefinitions,
		rbac.GetOpenAPIDefinitions,
		node.GetOpenAPIDefinitions,
		scheduling.GetOpenAPIDefinitions,
	} {
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
