// Package links is how sandboxes are connected in the kernel: interfaces, addresses, routes and neighbours of the host and of the sandboxes, over netlink. It makes what a lease
// says, whatever of it is there already, and knows neither which leases there are nor what may pass.
//
// Network namespaces are reached over netlink sockets that are opened in them, on threads that end thereafter; no thread of the caller is moved.
package links

import (
	"log/slog"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/network/podnet"
)

// Config says of which network.
type Config struct {
	Network podnet.Network
	// Owner is the bridge's alias: which node made it.
	Owner string
	Log   *slog.Logger
}

// Host is the host's network namespace, as far as it is of one network. All methods are safe for concurrent use.
type Host struct {
	// Socket is of the host, for what has to be fast.
	*Socket
	Bridge *Bridge
	Pairs  *Pairs
	Ways   *Ways
	nl     *netlink.Handle
}

// Open opens the network namespace of the calling thread. It changes nothing.
func Open(cfg Config) (_ *Host, err error) {
	h := &Host{}
	defer func() {
		if err != nil {
			h.Close()
		}
	}()
	if h.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, err
	}
	if h.Socket, err = OpenSocket(); err != nil {
		return nil, err
	}
	owner := cfg.Owner[:min(len(cfg.Owner), maxAlias)]
	h.Bridge = &Bridge{name: cfg.Network.Name, owner: owner, nl: h.nl, rt: h.Socket, log: cfg.Log}
	_, noIPv6 := os.Stat(IP6Conf)
	h.Pairs = &Pairs{network: cfg.Network, rt: h.Socket, nl: h.nl, ipv6: noIPv6 == nil}
	h.Ways = &Ways{network: cfg.Network, nl: h.nl, rt: h.Socket}
	return h, nil
}

// maxAlias is the kernel's limit of an interface's alias, IFALIASZ without the zero.
const maxAlias = 255

// Close gives the sockets back. Nothing changes on the host.
func (h *Host) Close() {
	if h.nl != nil {
		h.nl.Close()
	}
	if h.Socket != nil {
		h.Socket.Close()
	}
}

// LinkByName looks an interface of the host up, with all that is known of it.
func (h *Host) LinkByName(name string) (netlink.Link, error) { return h.nl.LinkByName(name) }

// Uplink is the interface of the default route: its MTU, and its index; 0: there is none, and the MTU is that of Ethernet.
func (h *Host) Uplink() (mtu, index int) { return uplink(h.nl) }

// Inside calls f with a socket of a sandbox's network namespace.
func Inside(path string, f func(*Socket) error) error {
	return ns.Run(path, ns.Network, func() error {
		sock, err := OpenSocket()
		if err != nil {
			return err
		}
		defer sock.Close()
		return f(sock)
	})
}
