package runtime

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UpdateRuntimeConfig takes the range of addresses for the pods of this node, which a kubelet learns from its cluster. Sandboxes that
// are there keep their addresses. No range is no change.
func (s *Server) UpdateRuntimeConfig(ctx context.Context, req *cri.UpdateRuntimeConfigRequest) (*cri.UpdateRuntimeConfigResponse, error) {
	ranges, err := podCIDRs(req.GetRuntimeConfig().GetNetworkConfig().GetPodCidr())
	if err != nil {
		return nil, err
	}
	if len(ranges) > 0 {
		if err := s.cfg.Network.UpdatePodCIDR(ctx, ranges); err != nil {
			return nil, err
		}
	}
	return &cri.UpdateRuntimeConfigResponse{}, nil
}

// podCIDRs reads what kubelets send: a range, or one of each family with a comma between them.
func podCIDRs(list string) ([]netip.Prefix, error) {
	if strings.TrimSpace(list) == "" {
		return nil, nil
	}
	var all []netip.Prefix
	for part := range strings.SplitSeq(list, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("runtime_config.network_config.pod_cidr %q: %w; a range such as 10.61.0.0/24 is needed, or one of each family: %w", list, err, errdefs.ErrInvalidArgument)
		}
		for _, other := range all {
			if other.Addr().Is4() == p.Addr().Is4() {
				return nil, fmt.Errorf("runtime_config.network_config.pod_cidr %q: there are two ranges of one family: %w", list, errdefs.ErrInvalidArgument)
			}
		}
		all = append(all, p.Masked())
	}
	return all, nil
}
