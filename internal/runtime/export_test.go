package runtime

import (
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/kit/ids"
)

// PublishForTest publishes an event of a sandbox, as if something had happened to it.
func (s *Server) PublishForTest(sandboxID string) {
	s.events.publish(sandboxID, ids.SandboxID(sandboxID), cri.ContainerEventType_CONTAINER_STARTED_EVENT)
}
