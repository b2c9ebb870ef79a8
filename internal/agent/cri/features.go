package cri

import (
	"context"
	"fmt"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RecursiveReadOnly says whether a handler of the runtime can make mounts read-only with all that is mounted below them; empty: the default handler. A
// runtime that does not tell of its handlers cannot, nor can a handler that it does not know. It asks the runtime each time: hardly any pod wants to know.
func (c *Client) RecursiveReadOnly(ctx context.Context, handler string) (bool, error) {
	f, err := c.handlerFeatures(ctx, handler)
	return f.GetRecursiveReadOnlyMounts(), err
}

// UserNamespaces says whether a handler of the runtime can give pods user namespaces, and mounts whose owners are those of the pod; empty: the default
// handler. Who does not tell cannot, as with RecursiveReadOnly: a runtime that knows no user namespaces would make the pod in the host's.
func (c *Client) UserNamespaces(ctx context.Context, handler string) (bool, error) {
	f, err := c.handlerFeatures(ctx, handler)
	return f.GetUserNamespaces(), err
}

// handlerFeatures are what the runtime says now of a handler; nil: nothing.
func (c *Client) handlerFeatures(ctx context.Context, handler string) (*cri.RuntimeHandlerFeatures, error) {
	ctx, cancel := context.WithTimeout(ctx, QueryTimeout)
	defer cancel()
	resp, err := c.Status(ctx, &cri.StatusRequest{})
	if err != nil {
		return nil, fmt.Errorf("CRI Status: %w", err)
	}
	for _, h := range resp.GetRuntimeHandlers() {
		if h.GetName() == handler {
			return h.GetFeatures(), nil
		}
	}
	return nil, nil
}
