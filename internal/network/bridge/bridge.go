package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/ruleset"
	"monopod.dev/monopod/internal/kit/keyed"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/network/rules"
	"monopod.dev/monopod/internal/state"
)

// containerInterface is the name of the interface in a sandbox.
const containerInterface = "eth0"

// maxInterfaceName is the kernel's limit, IFNAMSIZ without the zero.
const maxInterfaceName = 15

// Config says which network to make.
type Config struct {
	DB *state.DB
	// Bridge is the name of the bridge interface, at most 15 bytes.
	Bridge string
	// PodCIDRs are the ranges of the sandboxes, at most one of a family; the first address of each is the bridge's. An
	// IPv4 range is at most /30, an IPv6 range at most /126. None at all: 10.61.0.0/16, and where the host has IPv6 a
	// unique local /64 that is particular to the machine and the bridge.
	PodCIDRs []netip.Prefix
	// Table is the name of the nftables table (family inet); empty: the bridge's name.
	Table string
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

// Bridge is the network of one node. All methods are safe for concurrent use.
type Bridge struct {
	cfg        Config
	log        *slog.Logger
	name       string
	table      string
	device     *device
	configured []netip.Prefix // the ranges of Config
	notes      *notes
	forwarding *forwarding
	ledger     *lease.Ledger
	hostNS     netns.NsHandle
	nl         *netlink.Handle
	rt         *rtnl // of the host, for what has to be fast
	ct         *rtnl // connection tracking
	rules      *rules.Rules
	leaving    *leaving
	guard      network.Guard
	pairs      *pairs
	ways       *ways
	watcher    *ruleset.Watcher   // repairs the rule set as soon as somebody has changed it
	locks      keyed.Lock[string] // by sandbox: the operations on one come one after another
	flows      *flows

	updateMu sync.Mutex // one change of the ranges at a time
	hostMu   sync.Mutex // one change of the bridge and of the host's settings at a time
	shut     bool       // the way to the host's loopback addresses was closed until the guard is looked at

	fullMu sync.Mutex
	full   map[string]string // sandboxes that were refused connections, as was told last, and their pods

	places *places
	uplink *uplinkWatcher
}

// New reads the ledger and checks that the ranges are free. It changes nothing on the host.
//
// Errors: InvalidArgument (a name or range that cannot be), FailedPrecondition (a range overlaps an address or a route of
// the host, the bridge's name is taken, or the range is IPv6 and the host has none).
func New(ctx context.Context, cfg Config) (_ *Bridge, err error) {
	if cfg.Bridge == "" || len(cfg.Bridge) > maxInterfaceName {
		return nil, fmt.Errorf("network: bridge name %q: it must have 1 to %d bytes: %w", cfg.Bridge, maxInterfaceName, errdefs.ErrInvalidArgument)
	}
	b := &Bridge{
		log:    cfg.Log,
		name:   cfg.Bridge,
		table:  cfg.Table,
		notes:  openNotes(cfg.DB, cfg.Bridge),
		cfg:    cfg,
		hostNS: netns.None(),
		places: newPlaces(),
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	if b.table == "" {
		b.table = cfg.Bridge
	}
	if b.guard = cfg.Guard; b.guard == nil {
		b.guard = noGuard{}
	}
	ranges, err := b.chooseRanges(cfg.PodCIDRs)
	if err != nil {
		return nil, err
	}
	b.ledger = lease.Open(ctx, cfg.DB, cfg.Bridge, ranges, b.log)
	b.tellGuard()
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	if err := b.openSockets(ctx); err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	err = b.checkHost(ctx, ranges)
	if err != nil && len(cfg.PodCIDRs) == 0 && len(ranges) > 1 {
		// Nobody has asked for IPv6: it is no reason not to start.
		if b.checkHost(ctx, ranges[:1]) == nil {
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

// maxAlias is the kernel's limit of an interface's alias, IFALIASZ without the zero.
const maxAlias = 255

// openSockets opens what reaches the host's network namespace from any thread.
func (b *Bridge) openSockets(ctx context.Context) (err error) {
	if b.hostNS, err = netns.Get(); err != nil {
		return err
	}
	if b.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return err
	}
	if b.rt, err = openRTNL(); err != nil {
		return err
	}
	if b.ct, err = openNetlink(unix.NETLINK_NETFILTER); err != nil {
		return err
	}
	owner := ownerMark + b.cfg.DB.Path()
	b.device = &device{name: b.name, owner: owner[:min(len(owner), maxAlias)], nl: b.nl, rt: b.rt, log: b.log}
	_, noIPv6 := os.Stat(ip6Conf)
	b.pairs = &pairs{bridge: b.name, rt: b.rt, nl: b.nl, ipv6: noIPv6 == nil}
	b.ways = &ways{bridge: b.name, nl: b.nl, rt: b.rt}
	b.flows = &flows{rt: b.rt, ct: b.ct, log: b.log, crowded: rules.Crowded}
	b.forwarding = &forwarding{notes: b.notes, bridge: b.name, log: b.log}
	b.rules, err = rules.Open(rules.Config{
		Table: b.table, Bridge: b.name, Leases: b.ledger, NetNS: b.hostNS, Links: b.nl.LinkByName, Writes: func(port uint32) { b.watcher.SetWriter(port) }, SwitchedOn: b.forwarding.switchedOn,
		DNS: b.cfg.DNS, OwnPorts: b.cfg.OwnPorts, ConnectionsPerPod: b.cfg.ConnectionsPerPod,
		NoSourceGuard: b.cfg.NoSourceGuard, NoForwardGuard: b.cfg.NoForwardGuard, NoForeignRules: b.cfg.NoForeignRules, Log: b.log,
	})
	if err != nil {
		return err
	}
	b.forwarding.others = b.rules
	if b.leaving, err = openLeaving(b, b.log); err != nil {
		return err
	}
	if b.uplink, err = watchUplink(); err != nil {
		return err
	}
	if err = b.openWatcher(ctx); err == nil {
		b.uplink.start(b)
	}
	return err
}

// Start makes the bridge, the masquerading, the host ports and the forwarding, and watches over the rules from then on. It is
// idempotent.
func (b *Bridge) Start(ctx context.Context) error {
	// Checked again: the caller may have waited since New.
	if err := b.checkHost(ctx, b.ledger.Ranges()); err != nil {
		return err
	}
	if err := b.prepare(); err != nil {
		return err
	}
	b.log.InfoContext(ctx, "network ready", "bridge", b.name, "ranges", b.ledger.Ranges(), "inUse", b.ledger.InUse())
	return nil
}

// prepare makes everything on the host as it should be, for all sandboxes together.
func (b *Bridge) prepare() error {
	b.hostMu.Lock()
	defer b.hostMu.Unlock()
	b.watcher.SetActive(true)
	return b.prepareLocked()
}

func (b *Bridge) prepareLocked() (err error) {
	// The way to the loopback addresses is open only behind its guard, which has just been found to be there.
	defer func() {
		b.shut = err != nil
		err = errors.Join(err, b.pairs.routeLocalnet(err == nil))
	}()
	err = b.notes.change(func(n *hostNote) bool { // before it is made
		had := n.Bridge
		n.Bridge = true
		return !had
	})
	if err != nil {
		return err
	}
	if err := b.ensureBridge(); err != nil {
		return fmt.Errorf("network: bridge %s: %w", b.name, err)
	}
	if err := b.forwarding.enable(b.servedRanges()); err != nil {
		return err
	}
	return b.rules.Install()
}

// ensureBridge makes the bridge, and what goes with it.
func (b *Bridge) ensureBridge() error {
	gateways := b.gateways()
	link, err := b.device.ensure(gateways)
	if err != nil {
		return err
	}
	if err := b.followUplink(); err != nil {
		return err
	}
	if err := b.device.serve(link, gateways); err != nil {
		return err
	}
	return b.ways.closeRanges(b.servedRanges())
}

// gateways are the bridge's addresses: that of each range that is configured or in use, by itself.
func (b *Bridge) gateways() []netip.Prefix {
	var out []netip.Prefix
	for _, r := range b.servedRanges() {
		out = append(out, hostPrefix(lease.GatewayOf(r)))
	}
	return out
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
	_, err := b.heal(ctx, func() bool { return true })
	if err == nil {
		b.tellOfFull(ctx)
	}
	return err
}

// heal looks whether the host is as it was left, and repairs it, if that is still wanted then.
func (b *Bridge) heal(ctx context.Context, wanted func() bool) (repaired bool, err error) {
	missing := b.look()
	b.hostMu.Lock()
	defer b.hostMu.Unlock()
	if !wanted() || missing == nil && !b.shut {
		return false, nil
	}
	if missing == nil {
		b.shut = false
		return false, b.pairs.routeLocalnet(true)
	}
	b.log.WarnContext(ctx, "the network is not as it was left, it is repaired", "error", missing)
	// First of all: what is missing may be the guard.
	err = errors.Join(b.pairs.routeLocalnet(false), b.prepareLocked())
	if err == nil {
		err = b.reattach()
	}
	if err != nil {
		return true, fmt.Errorf("%w; it could not be repaired: %w", missing, err)
	}
	return true, b.look()
}

// look says what of the host is not as it should be.
func (b *Bridge) look() error {
	if err := b.device.missing(b.gateways()); err != nil {
		return err
	}
	if err := b.forwarding.missing(b.servedRanges()); err != nil {
		return err
	}
	return b.rules.Verify()
}

// reattach makes the ways to the sandboxes again, after the bridge was made anew: without the gateway's address the kernel has taken them away.
func (b *Bridge) reattach() error {
	bridge, found, err := b.rt.link(b.name)
	if err != nil || !found {
		return err
	}
	var errs []error
	for id, rec := range b.ledger.All() {
		if rec.Leaving {
			continue
		}
		if err := b.pairs.reattach(rec, bridge); err != nil {
			errs = append(errs, fmt.Errorf("network of sandbox %s: interface %s: %w", id, rec.Interface, err))
		}
	}
	return errors.Join(errs...)
}

// Warnings tells what this host cannot give its pods, in words for its operator.
func (b *Bridge) Warnings() []string { return b.rules.Warnings() }

// Remove takes everything away that the network has made on the host: the ports of all sandboxes, the bridge, the
// nftables table and rules, and what it has switched on of forwarding when nobody else needs it. It also empties the
// ledger. It goes on after an error and returns all of them; it is idempotent.
func (b *Bridge) Remove(ctx context.Context) error {
	errs := []error{b.drop(b.ledger.Sandboxes())}
	b.hostMu.Lock()
	defer b.hostMu.Unlock()
	b.watcher.SetActive(false)
	link, err := b.device.link()
	if err == nil && link != nil && b.device.ours(link) {
		errs = append(errs, b.pairs.remove(nil))
		err = b.device.remove()
	}
	errs = append(errs, err, b.ways.closeRanges(nil))
	if err := b.rules.Remove(); err != nil {
		errs = append(errs, err)
	} else {
		errs = append(errs, b.forwarding.restore(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("network: removing bridge %s: %w", b.name, err)
	}
	if err := b.notes.forget(); err != nil {
		return err
	}
	return b.ledger.Forget()
}

// Close frees the addresses of sandboxes that have been torn down, whose interfaces it does not wait for any more, and gives the sockets back.
// Nothing else changes on the host.
func (b *Bridge) Close() {
	b.uplink.close()
	if b.watcher != nil {
		b.watcher.Close()
	}
	if b.leaving != nil {
		b.leaving.close()
	}
	if b.rules != nil {
		b.rules.Close()
	}
	if b.nl != nil {
		b.nl.Close()
	}
	for _, s := range []*rtnl{b.rt, b.ct} {
		if s != nil {
			s.Close()
		}
	}
	if b.hostNS.IsOpen() {
		b.hostNS.Close()
	}
}
