package agent

import (
	"context"

	"monopod.dev/monopod/internal/agent/podresources"
)

// podResources is the PodResources API; nil: it is not to be served.
func (a *Agent) podResources(p *roster) (*podresources.Server, error) {
	if a.cfg.PodResourcesSocket == "" {
		return nil, nil
	}
	cfg := podresources.Config{Socket: a.cfg.PodResourcesSocket, Pods: p, Log: a.log}
	if a.cfg.Devices != nil {
		cfg.Devices = a.cfg.Devices
	}
	return podresources.New(cfg)
}

// servePodResources serves until ctx ends, once it is known which pods there are: those who find no socket wait for it, those who are told of
// no pods believe it.
func servePodResources(ctx context.Context, p *roster, s *podresources.Server) {
	if s == nil {
		return
	}
	select {
	case <-p.known:
		s.Run(ctx)
	case <-ctx.Done():
	}
}
