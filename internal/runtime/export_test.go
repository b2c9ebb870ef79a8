package runtime

import (
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PublishForTest publishes an event of a sandbox, as if something had happened to it.
func (s *Server) PublishForTest(sandboxID string) {
	s.events.publish(sandboxID, sandboxID, cri.ContainerEventType_CONTAINER_STARTED_EVENT)
}
