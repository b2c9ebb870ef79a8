package client

import (
	"context"

	"monopod.dev/monopod/internal/executor/protocol"
)

// Ping asks the executor who it is, and waits for the answer; Hello may know it from before.
func (c *Client) Ping(ctx context.Context) (protocol.HelloResponse, error) {
	return call[protocol.HelloResponse](ctx, c, protocol.MethodHello, protocol.HelloRequest{MinVersion: protocol.MinVersion, MaxVersion: protocol.Version}, true)
}
