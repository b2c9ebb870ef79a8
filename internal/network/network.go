package network

import (
	"context"
	"net/netip"

	"monopod.dev/monopod/internal/kit/ids"
)

// Network connects the sandboxes of a node. The built-in bridge is one, the plugins of CNI are another, and the choice of both is a third; contract_test.go holds
// each of them to what is said here.
//
// What a network knows of its sandboxes is on disk before it is used, and outlives the process: the next one finds the same sandboxes, with the same addresses. A network owns what it
// has made, on the host and in the sandboxes. The network namespaces are the caller's, who makes them before Setup, and removes them when he likes.
//
// All methods are safe for concurrent use; of two about one sandbox the second waits for the first. Errors name the sandbox, and have the classes of package errdefs that are
// told with the methods; whatever has another class is a failure of the host, and may be tried again.
type Network interface {
	// Setup connects a sandbox. When it returns, loopback is up in the sandbox, and its interface (InterfaceName) has an address of each family of the network that no other
	// sandbox has. It is idempotent: of a sandbox that is connected it returns the same as before. When it fails for one that was not connected, nothing of it is left, or the error
	// says what is, and the next Setup or Teardown takes that away. Request and result are the caller's, who may change both.
	//
	// Errors: InvalidArgument (no sandbox id or no path of a namespace; a request that cannot be), NotFound (nothing is at the path), FailedPrecondition (something of the host is
	// missing or in the way; the sandbox is connected with other host ports), Unavailable (not now). The bridge, which maps host ports and gives addresses
	// itself, also has AlreadyExists (a host port is another's) and ResourceExhausted (no address is left).
	Setup(ctx context.Context, req Request) (Result, error)

	// Teardown disconnects a sandbox, whether its namespace is there still or not. When it returns its host ports are free; its addresses are as soon as its interface is gone, which
	// goes with the namespace, or else a moment later. It is idempotent: of a sandbox that nobody has connected it returns nil. It does not end with ctx. After an error the sandbox is still
	// known, and Teardown may be called again.
	Teardown(ctx context.Context, sandboxID ids.SandboxID) error

	// Reconcile is called once a process has begun, before any Setup: live are the sandboxes that live, by id, with the paths of their network namespaces. Every other sandbox is torn
	// down; those that live keep what they have. One whose path is empty, because its namespace cannot be found, keeps what it has, too, and is left as it is. Reconcile goes on after an error,
	// and returns all of them.
	Reconcile(ctx context.Context, live map[ids.SandboxID]string) error

	// Status is nil when a new sandbox could be connected. Where something is missing that the network has made, it is made again. The error says what an operator has to do. It takes
	// no longer than a moment.
	Status(ctx context.Context) error

	// UpdatePodCIDR says which ranges new sandboxes get their addresses from, one of each family at most, where it is the network's to say; those that are connected keep theirs. The
	// ranges are on disk when it returns, and hold for the next process, too. It is idempotent.
	//
	// Errors: InvalidArgument (what is no range), FailedPrecondition (a range that is somebody else's). Then the ranges are those of before.
	UpdatePodCIDR(ctx context.Context, ranges []netip.Prefix) error

	// InterfaceStats reads the counters of sandboxes' interfaces. They are given by their ids, with the paths of their network namespaces. A sandbox that is gone, or that
	// nobody has connected, is left out. With an error the result has those that could be read. The result is the caller's.
	InterfaceStats(ctx context.Context, sandboxes map[ids.SandboxID]string) (map[ids.SandboxID][]InterfaceStat, error)

	// Remove takes away all that the network has made on the host, for all sandboxes, and forgets them. It goes on after an error, and returns all of them. It is idempotent.
	Remove(ctx context.Context) error

	// Close gives back what the process holds. Nothing changes on the host: sandboxes stay connected. No method is called after it.
	Close()
}
