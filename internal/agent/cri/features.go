package cri

import (
	"context"
	"fmt"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RecursiveReadOnly says whether a handler of the runtime can make mounts read-only with all that is mounted below them; empty: the default handler. A
// runtime that does not tell of its handlers cannot, nor can a handler that it does not know. It asks the runtime each time: hardly any pod wants to know.
func (c *Client) RecursiveReadOnly(ctx context.Context, handler string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, QueryTimeout)
	defer cancel()
	resp, err := c.Status(ctx, &cri.StatusRequest{})
	if err != nil {
		return false, fmt.Errorf("CRI Status: %w", err)
	}
	for _, h := range resp.GetRuntimeHandlers() {
		if h.GetName() == handler {
			return h.GetFeatures().GetRecursiveReadOnlyMounts(), nil
		}
	}
	return false, nil
}
