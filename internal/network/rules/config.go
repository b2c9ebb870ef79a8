package rules

import (
	"log/slog"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/network/podnet"
)

// Config says what the rules are of.
type Config struct {
	// Network is the one whose sandboxes they are for. Its name is that of the nftables table, of the family inet, and marks the rules in chains of others.
	Network podnet.Network
	// Leases are those that the rules are written from. What they say of a sandbox is so before Admit or Unmap are called for it.
	Leases Leases
	// NetNS is the host's network namespace.
	NetNS netns.NsHandle
	// Links looks interfaces of the host up.
	Links func(name string) (netlink.Link, error)
	// Writes is told the netlink port of each connection by which rules are written: what comes from it is this node's own doing.
	Writes func(port uint32)
	// SwitchedOn says for which families this node has switched the host's forwarding on.
	SwitchedOn func() (Families, error)
	// DNS are the addresses of the host at which it serves the cluster's DNS.
	DNS []netip.Addr
	// OwnPorts are those at which the node itself serves.
	OwnPorts []network.OwnPort
	// ConnectionsPerPod is how many connections a sandbox may have open; see network/bridge.Config.
	ConnectionsPerPod *int32
	// NoSourceGuard, NoForwardGuard and NoForeignRules leave out what they name; see network/bridge.Config.
	NoSourceGuard, NoForwardGuard, NoForeignRules bool
	Log                                           *slog.Logger
}

// Leases is the ledger, as far as rules follow from it.
type Leases interface {
	// All are the leases by sandbox.
	All() map[ids.SandboxID]lease.Lease
	// UsedRanges are the ranges that sandboxes have addresses of.
	UsedRanges() []netip.Prefix
}

// Families are those of addresses.
type Families struct{ IP4, IP6 bool }

// Any says that it is one at least.
func (f Families) Any() bool { return f.IP4 || f.IP6 }
