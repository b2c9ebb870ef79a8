package cri

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/agent/userns"
)

// HeldIDs are the IDs of the host that the user namespaces of the runtime's pods have, by the pods' UIDs, as far as it tells them. It costs a call for each
// sandbox. Of a pod that has several sandboxes, those of the one that is ready count.
func (c *Client) HeldIDs(ctx context.Context) (map[types.UID]userns.Range, error) {
	ctx, cancel := context.WithTimeout(ctx, QueryTimeout)
	defer cancel()
	list, err := c.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list all sandboxes: %w", err)
	}
	held := map[types.UID]userns.Range{}
	for _, s := range list.Items {
		ref, ok := podspec.RefOf(s.Labels)
		if _, known := held[ref.UID]; !ok || known && s.State != cri.PodSandboxState_SANDBOX_READY {
			continue
		}
		resp, err := c.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: s.Id})
		if status.Code(err) == codes.NotFound {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("status of sandbox %s of pod %s: %w", s.Id, ref.UID, err)
		}
		if ids, ok := podspec.IDsOf(resp.GetStatus().GetLinux().GetNamespaces().GetOptions().GetUsernsOptions()); ok {
			held[ref.UID] = ids
		}
	}
	return held, nil
}
