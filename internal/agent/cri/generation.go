package cri

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/stats"
)

// Generation is the runtime between two of its restarts: what was learnt of it by trying holds for one generation. A runtime that was upgraded,
// or reads a changed configuration, was restarted, so it is connected to anew; the event stream says less, for some runtimes have none.
type Generation struct {
	// Name and Version are what it said of itself last.
	Name, Version string
	// Connection numbers the connections that were made to it, from 1; 0: none yet.
	Connection int64
}

// Generation is the runtime as it is now. The name and the version are those of the last Identify.
func (c *Client) Generation() Generation {
	id := c.Identity()
	return Generation{Name: id.Name, Version: id.Version, Connection: c.connections.made.Load()}
}

// connections counts the connections that gRPC makes.
type connections struct{ made atomic.Int64 }

var _ stats.Handler = (*connections)(nil)

// HandleConn implements stats.Handler.
func (c *connections) HandleConn(_ context.Context, s stats.ConnStats) {
	if _, begun := s.(*stats.ConnBegin); begun {
		c.made.Add(1)
	}
}

// TagConn implements stats.Handler.
func (c *connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// TagRPC implements stats.Handler.
func (c *connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (c *connections) HandleRPC(context.Context, stats.RPCStats) {}
