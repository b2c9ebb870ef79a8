package network

import (
	"context"
	"net/netip"

	"monopod.dev/monopod/internal/kit/ids"
)

// Endpoint is a sandbox of the network as somebody knows it who judges what it sends and receives.
type Endpoint struct {
	SandboxID ids.SandboxID
	// Pod is whose sandbox it is; empty where nobody knows any more.
	Pod       PodInfo
	Addresses []netip.Addr
}

// Guard is told whose the addresses of sandboxes are, so that what is to hold for a pod's traffic holds before there is any. Its methods do not wait, and are
// safe for concurrent use.
type Guard interface {
	// Connecting is told of a sandbox as soon as its addresses are known, before it can send or receive, and of all that have addresses when the process
	// starts. It may be told again. What it returns waits until all that is to hold for the sandbox does; its error is that of the sandbox's Setup.
	Connecting(Endpoint) (settled func(context.Context) error)
	// Disconnected is told that sandboxes' interfaces are gone, and their addresses free.
	Disconnected(sandboxIDs ...ids.SandboxID)
}
