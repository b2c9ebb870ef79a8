package agent

import (
	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/cri"
)

// nodeFeatures writes what the runtime says that it can as the Node's status does.
func nodeFeatures(f cri.Features) (*v1.NodeFeatures, []v1.NodeRuntimeHandler) {
	var features *v1.NodeFeatures
	if f.Runtime != nil {
		features = &v1.NodeFeatures{SupplementalGroupsPolicy: new(f.Runtime.SupplementalGroupsPolicy)}
	}
	var handlers []v1.NodeRuntimeHandler
	for _, h := range f.Handlers {
		handlers = append(handlers, v1.NodeRuntimeHandler{Name: h.Name, Features: &v1.NodeRuntimeHandlerFeatures{
			RecursiveReadOnlyMounts: new(h.GetFeatures().GetRecursiveReadOnlyMounts()), UserNamespaces: new(h.GetFeatures().GetUserNamespaces()),
		}})
	}
	return features, handlers
}
