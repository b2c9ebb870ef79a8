package runtime

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PortForward prepares a URL at which connections to ports of a ready sandbox's loopback device are served, once. Without a port
// in the request the client names one with each connection; otherwise it gets no other than those.
func (s *Server) PortForward(_ context.Context, req *cri.PortForwardRequest) (*cri.PortForwardResponse, error) {
	id, err := s.sandboxID(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	ports := make([]uint16, len(req.GetPort()))
	for i, port := range req.GetPort() {
		if port < 1 || port > 65535 {
			return nil, fmt.Errorf("port[%d] is %d; it must be between 1 and 65535: %w", i, port, errdefs.ErrInvalidArgument)
		}
		ports[i] = uint16(port)
	}
	if len(ports) > maxForwardedPorts {
		return nil, fmt.Errorf("port has %d entries; at most %d can be forwarded at one URL: %w", len(ports), maxForwardedPorts, errdefs.ErrInvalidArgument)
	}
	// What can be refused is refused now, where the client gets a code.
	if _, err := s.sandboxLife.NetworkNamespace(id); err != nil {
		return nil, err
	}
	url, err := s.streaming.PortForward(id, ports)
	if err != nil {
		return nil, err
	}
	return &cri.PortForwardResponse{Url: url}, nil
}

// maxForwardedPorts is how many ports fit into a WebSocket's channels, two a port, of which a byte holds the number.
const maxForwardedPorts = 127
