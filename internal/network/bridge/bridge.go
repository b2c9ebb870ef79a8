package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netns"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/network/links"
	"monopod.dev/monopod/internal/network/podnet"
	"monopod.dev/monopod/internal/network/rules"
	"monopod.dev/monopod/internal/state"
)

// Config says which network to make.
type Config struct {
	DB *state.DB
	// Network is the network. An IPv4 range is at most /30, an IPv6 range at most /126. None at all: 10.61.0.0/16, and where the host has IPv6 a
	// unique local /64 that is particular to the machine and the name.
	Network podnet.Network
	// NoSourceGuard lets pods send with addresses that are not theirs.
	NoSourceGuard bool
	// ConnectionsPerPod is how many connections a sandbox may have open, by each of its addresses, about; 0: as many as there is room for. nil: a quarter of the
	// kernel's room (nf_conntrack_max), whatever that is at the time.
	ConnectionsPerPod *int32
	// NoForwardGuard lets the host forward packets between its other networks, also where this node has switched that on.
	NoForwardGuard bool
	// DNS are the addresses of the host at which it serves the cluster's DNS; none: it serves none.
	DNS []netip.Addr
	// OwnPorts are those at which the node itself serves. No sandbox gets one.
	OwnPorts []network.OwnPort
	// Guard is told whose the addresses of sandboxes are; nil: nobody is.
	Guard network.Guard
	// NoForeignRules puts no rules into chains of others.
	NoForeignRules bool
	Log            *slog.Logger
}

// Bridge is the network of one node: what is on the host for all sandboxes (host), and the sandboxes that are connected (sandboxes), as the ledger says. All
// methods are safe for concurrent use.
type Bridge struct {
	log        *slog.Logger
	name       string
	configured []netip.Prefix // the ranges of Config
	ledger     *lease.Ledger
	rules      *rules.Rules
	links      *links.Host
	hostNS     netns.NsHandle
	dns        bool // the host serves the cluster's DNS
	host       *host
	sandboxes  *sandboxes
	full       full

	updateMu sync.Mutex // one change of the ranges at a time
}

var _ network.Network = (*Bridge)(nil)

// New reads the ledger and checks that the ranges are free. It changes nothing on the host.
//
// Errors: InvalidArgument (a name or range that cannot be), FailedPrecondition (a range overlaps an address or a route of
// the host, the bridge's name is taken, or the range is IPv6 and the host has none).
func New(ctx context.Context, cfg Config) (_ *Bridge, err error) {
	if name := cfg.Network.Name; name == "" || len(name) > podnet.MaxName {
		return nil, fmt.Errorf("network: bridge name %q: it must have 1 to %d bytes: %w", name, podnet.MaxName, errdefs.ErrInvalidArgument)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Guard == nil {
		cfg.Guard = noGuard{}
	}
	b := &Bridge{log: cfg.Log, name: cfg.Network.Name, dns: len(cfg.DNS) > 0, hostNS: netns.None()}
	notes := openNotes(cfg.DB, cfg.Network.Name)
	note, err := notes.get()
	if err != nil {
		return nil, err
	}
	var ranges []netip.Prefix
	if b.configured, ranges, err = chooseRanges(cfg, note); err != nil {
		return nil, err
	}
	b.ledger = lease.Open(ctx, cfg.DB, cfg.Network.Name, ranges, b.log)
	tellGuard(cfg.Guard, b.ledger)
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	if err := b.open(ctx, cfg, notes); err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	err = b.host.check(ctx, ranges)
	if err != nil && len(cfg.Network.Ranges) == 0 && len(ranges) > 1 {
		// Nobody has asked for IPv6: it is no reason not to start.
		if b.host.check(ctx, ranges[:1]) == nil {
			b.log.WarnContext(ctx, "pods get IPv4 addresses only", "error", err)
			b.ledger.SetRanges(ranges[:1])
			return b, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// open opens what reaches the host's network namespace from any thread.
func (b *Bridge) open(ctx context.Context, cfg Config, notes *notes) (err error) {
	if b.hostNS, err = netns.Get(); err != nil {
		return err
	}
	if b.links, err = links.Open(links.Config{Network: cfg.Network, Owner: ownerOf(cfg.DB.Path()), Log: b.log}); err != nil {
		return err
	}
	places := newPlaces()
	b.host = &host{name: b.name, log: b.log, ns: b.hostNS, links: b.links, ledger: b.ledger, places: places, notes: notes,
		forwarding: &forwarding{notes: notes, bridge: b.name, log: b.log}}
	b.rules, err = rules.Open(rules.Config{
		Network: cfg.Network, Leases: b.ledger, NetNS: b.hostNS, Links: b.links.LinkByName, Writes: b.host.writes, SwitchedOn: b.host.forwarding.switchedOn,
		DNS: cfg.DNS, OwnPorts: cfg.OwnPorts, ConnectionsPerPod: cfg.ConnectionsPerPod,
		NoSourceGuard: cfg.NoSourceGuard, NoForwardGuard: cfg.NoForwardGuard, NoForeignRules: cfg.NoForeignRules, Log: b.log,
	})
	if err != nil {
		return err
	}
	all := &sandboxes{bridge: b.name, ownPorts: cfg.OwnPorts, log: b.log, hostNS: b.hostNS, links: b.links, ledger: b.ledger, rules: b.rules,
		guard: cfg.Guard, places: places}
	if err := all.open(); err != nil {
		return err
	}
	b.sandboxes = all
	return b.host.open(ctx, b.rules)
}

// Start makes the bridge, the masquerading, the host ports and the forwarding, and watches over the rules from then on. It is
// idempotent.
func (b *Bridge) Start(ctx context.Context) error {
	// Checked again: the caller may have waited since New.
	if err := b.host.check(ctx, b.ledger.Ranges()); err != nil {
		return err
	}
	if err := b.host.prepare(); err != nil {
		return err
	}
	b.log.InfoContext(ctx, "network ready", "bridge", b.name, "ranges", b.ledger.Ranges(), "inUse", b.ledger.InUse())
	return nil
}

// Setup connects the sandbox: loopback up, an address of each family, default routes, its host ports. It is idempotent: for
// a sandbox that is connected it returns the same, and repairs what is missing. Addresses and ports are on disk before they
// are used. When Setup fails for a sandbox that had no address before, it leaves nothing.
//
// Errors: ResourceExhausted (a range is used up), AlreadyExists (another sandbox, or the node itself, has a host port), InvalidArgument (a host
// port that cannot be), NotFound (no such namespace), FailedPrecondition (no bridge: Start comes first; or the namespace
// has an interface of that name; or the sandbox is connected with other host ports).
func (b *Bridge) Setup(ctx context.Context, req network.Request) (network.Result, error) {
	return b.sandboxes.setUp(ctx, req, true)
}

// Prepare does of Setup what needs no network namespace: the sandbox's addresses and ports are on disk when it returns, and the
// source guard knows it. What it cannot do is left to Setup, which tells why. Teardown gives back what nobody sets up.
func (b *Bridge) Prepare(_ context.Context, req network.Request) { b.sandboxes.prepare(req) }

// Teardown disconnects the sandbox: its host ports are free when Teardown returns. Its addresses are free when its interface
// is gone, which happens when its network namespace is removed (the caller's next step), or else a second later. It is
// idempotent.
func (b *Bridge) Teardown(_ context.Context, sandboxID ids.SandboxID) error {
	return b.sandboxes.tearDown(sandboxID)
}

// Reconcile makes the ledger and the kernel agree with the sandboxes that live: sandboxID to the path of its network
// namespace. Addresses and ports of others are freed and their interfaces deleted; a live one is connected again as far as
// it is not, and one without a record keeps the addresses that its namespace shows. One whose path is empty, because its
// namespace is not to be found and processes may be in it all the same, keeps what it has. It goes on after an error and
// returns all.
func (b *Bridge) Reconcile(ctx context.Context, live map[ids.SandboxID]string) error {
	return b.sandboxes.reconcile(ctx, live)
}

// Has says that the sandbox has an address of this network.
func (b *Bridge) Has(sandboxID ids.SandboxID) bool {
	_, ok := b.ledger.Get(sandboxID)
	return ok
}

// InterfaceStats returns the counters of the sandboxes' interfaces: sandboxID to the path of its network namespace. One
// that this network has not connected is left out.
func (b *Bridge) InterfaceStats(_ context.Context, sandboxes map[ids.SandboxID]string) (map[ids.SandboxID][]network.InterfaceStat, error) {
	return b.links.Counters(b.sandboxes.places.byIndex(sandboxes))
}

// Gateways are the addresses of the host on the bridge in the ranges that new sandboxes get their addresses from. It need not be made yet.
func (b *Bridge) Gateways() (all []netip.Addr) {
	for _, r := range b.ledger.Ranges() {
		all = append(all, lease.GatewayOf(r))
	}
	return all
}

// Status tells whether sandboxes can be connected. nil is CRI's NetworkReady. What somebody has taken away or switched off
// since Start (a deleted bridge) is repaired; the error says what could not be.
func (b *Bridge) Status(ctx context.Context) error {
	_, err := b.host.heal(ctx, func() bool { return true })
	if err == nil {
		b.full.tell(ctx, b.rules, b.ledger, b.log)
	}
	return err
}

// Warnings tells what this host cannot give its pods, in words for its operator.
func (b *Bridge) Warnings() []string { return b.rules.Warnings() }

// Remove takes everything away that the network has made on the host: the ports of all sandboxes, the bridge, the
// nftables table and rules, and what it has switched on of forwarding when nobody else needs it. It also empties the
// ledger. It goes on after an error and returns all of them; it is idempotent.
func (b *Bridge) Remove(ctx context.Context) error {
	if err := errors.Join(b.sandboxes.drop(b.ledger.Sandboxes()), b.host.remove(ctx)); err != nil {
		return fmt.Errorf("network: removing bridge %s: %w", b.name, err)
	}
	if err := b.host.forget(); err != nil {
		return err
	}
	return b.ledger.Forget()
}

// Close frees the addresses of sandboxes that have been torn down, whose interfaces it does not wait for any more, and gives the sockets back.
// Nothing else changes on the host.
func (b *Bridge) Close() {
	if b.host != nil {
		b.host.close()
	}
	if b.sandboxes != nil {
		b.sandboxes.close()
	}
	if b.rules != nil {
		b.rules.Close()
	}
	if b.links != nil {
		b.links.Close()
	}
	if b.hostNS.IsOpen() {
		b.hostNS.Close()
	}
}
