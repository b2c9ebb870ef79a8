package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"

	"github.com/containerd/errdefs"
	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/host/ruleset"
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
	OwnPorts []OwnPort
	// Guard is told whose the addresses of sandboxes are; nil: nobody is.
	Guard Guard
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
	owner      string         // the bridge's alias: which node made it
	configured []netip.Prefix // the ranges of Config
	notes      state.Table[hostNote]
	ledger     *ledger
	hostNS     netns.NsHandle
	nl         *netlink.Handle
	rt         *rtnl // of the host, for what has to be fast
	ct         *rtnl // connection tracking
	elements   *rtnl // nftables, for what comes and goes with sandboxes
	leaving    *leaving
	guard      Guard
	localnet   localnet
	watcher    *ruleset.Watcher                   // repairs the rule set as soon as somebody has changed it
	foreign    atomic.Pointer[map[chainName]bool] // where others' rules for forwarded packets are, as last found
	locks      sandboxLocks
	procfs     ns.Procfs   // for the sysctls of sandboxes
	ipv6       bool        // the kernel has it; to look that up for each sandbox would take longer with their number
	shared     atomic.Bool // others forward packets, with this node's knowledge
	// crowded says that the kernel's table of connections is; a test says it is.
	crowded func() bool

	updateMu sync.Mutex // one change of the ranges at a time
	hostMu   sync.Mutex // one change of the bridge and of the host's settings at a time
	shut     bool       // the way to the host's loopback addresses was closed until the guard is looked at

	firewallMu sync.Mutex       // one nftables transaction at a time
	nft        *nftables.Conn   // nil: none is open
	verified   uint32           // the generation of the rule set when it was last found as it should be; 0: never
	installed  map[ownChain]int // how many rules this process has written, by chain; nil: none yet
	elementsOf map[string]bool  // whose elements are written, by the host's end; true: its host ports, too
	forwards   forwardGuard     // as it was written
	opened     []netip.Prefix   // the ranges that the marked rules in others' chains are of; nil: not known
	bound      bound            // as it was written
	unbounded  error            // why connections of sandboxes are not bounded though they should be

	fullMu sync.Mutex
	full   map[string]string // sandboxes that were refused connections, as was told last, and their pods

	indexMu sync.Mutex
	indexes map[string]int    // of the host's ends, by sandbox
	spaces  map[string]string // the paths of their network namespaces
	uplink  *uplinkWatcher
}

// hostNote is written down before the host is changed, by the bridge's name in the table "network-host".
type hostNote struct {
	// Bridge: this node makes the bridge.
	Bridge bool `json:"bridge"`
	// IPForward: net.ipv4.ip_forward was 0, and this node sets it to 1. IP6Forward: the same for IPv6.
	IPForward  bool `json:"ipForward,omitempty"`
	IP6Forward bool `json:"ip6Forward,omitempty"`
	// Boot is the boot of the host that forwarding and AcceptRA are about. After another one they say nothing: what is on then is somebody
	// else's doing.
	Boot string `json:"boot,omitempty"`
	// AcceptRA are the interfaces whose net.ipv6.conf.*.accept_ra was 1, and this node sets it to 2.
	AcceptRA []string `json:"acceptRA,omitempty"`
	// Updated are the pod ranges that UpdatePodCIDR has set. They hold as long as the configuration says Configured.
	Updated    []netip.Prefix `json:"updated,omitempty"`
	Configured []netip.Prefix `json:"configured,omitempty"`
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
		crowded: crowdedTable,
		log:     cfg.Log,
		name:    cfg.Bridge,
		table:   cfg.Table,
		owner:   ownerMark + cfg.DB.Path(),
		notes:   state.NewTable[hostNote](cfg.DB, "network-host"),
		cfg:     cfg,
		hostNS:  netns.None(),
		indexes: map[string]int{}, spaces: map[string]string{},

		elementsOf: map[string]bool{},
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	if b.table == "" {
		b.table = cfg.Bridge
	}
	if len(b.owner) > maxAlias {
		b.owner = b.owner[:maxAlias]
	}
	if b.guard = cfg.Guard; b.guard == nil {
		b.guard = noGuard{}
	}
	_, err = os.Stat(ip6Conf)
	b.ipv6 = err == nil
	ranges, err := b.chooseRanges(cfg.PodCIDRs)
	if err != nil {
		return nil, err
	}
	b.ledger = openLedger(ctx, cfg.DB, cfg.Bridge, ranges, b.log)
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
			b.ledger.setRanges(ranges[:1])
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
	if b.elements, err = openNetlink(unix.NETLINK_NETFILTER); err != nil {
		return err
	}
	if b.leaving, err = openLeaving(b); err != nil {
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
	if err := b.checkHost(ctx, b.ledger.podRanges()); err != nil {
		return err
	}
	if err := b.prepare(); err != nil {
		return err
	}
	b.log.InfoContext(ctx, "network ready", "bridge", b.name, "ranges", b.ledger.podRanges(), "inUse", b.ledger.inUse())
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
		err = errors.Join(err, b.routeLocalnet(err == nil))
	}()
	if err := b.noteBridge(); err != nil {
		return err
	}
	if err := b.ensureBridge(); err != nil {
		return fmt.Errorf("network: bridge %s: %w", b.name, err)
	}
	if err := b.enableForwarding(); err != nil {
		return err
	}
	return b.withFirewall(func(fw *firewall) error {
		if err := fw.install(); err != nil {
			return err
		}
		return fw.check()
	})
}

// noteBridge writes down that the bridge is ours before it is made.
func (b *Bridge) noteBridge() error {
	note, err := b.note()
	if err != nil || note.Bridge {
		return err
	}
	note.Bridge = true
	return b.notes.Put(b.name, note)
}

func (b *Bridge) note() (hostNote, error) {
	note, err := b.notes.Get(b.name)
	if err != nil && !errdefs.IsNotFound(err) {
		return note, fmt.Errorf("network: %w", err)
	}
	return note, nil
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
		return false, b.routeLocalnet(true)
	}
	b.log.WarnContext(ctx, "the network is not as it was left, it is repaired", "error", missing)
	// First of all: what is missing may be the guard.
	err = errors.Join(b.routeLocalnet(false), b.prepareLocked())
	if err == nil {
		err = b.reattach()
	}
	if err != nil {
		return true, fmt.Errorf("%w; it could not be repaired: %w", missing, err)
	}
	return true, b.look()
}

// Warnings tells what this host cannot give its pods, in words for its operator.
func (b *Bridge) Warnings() []string {
	b.firewallMu.Lock()
	defer b.firewallMu.Unlock()
	var all []string
	if b.unbounded != nil {
		all = append(all, boundMissing+": "+b.unbounded.Error())
	}
	return all
}

// Remove takes everything away that the network has made on the host: the ports of all sandboxes, the bridge, the
// nftables table and rules, and what it has switched on of forwarding when nobody else needs it. It also empties the
// ledger. It goes on after an error and returns all of them; it is idempotent.
func (b *Bridge) Remove(ctx context.Context) error {
	errs := []error{b.drop(b.ledger.sandboxes())}
	b.hostMu.Lock()
	defer b.hostMu.Unlock()
	b.watcher.SetActive(false)
	link, err := b.link()
	if err == nil && link != nil && b.ours(link) {
		errs = append(errs, b.removeEnds(nil))
		err = b.nl.LinkDel(link)
	}
	errs = append(errs, err, b.closeRanges(nil), b.withFirewall(func(fw *firewall) error {
		if err := fw.remove(); err != nil {
			return err
		}
		return b.restoreForwarding(ctx, fw)
	}))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("network: removing bridge %s: %w", b.name, err)
	}
	if err := b.notes.Delete(b.name); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	return b.ledger.forget()
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
	b.firewallMu.Lock()
	b.closeFirewall()
	b.firewallMu.Unlock()
	if b.nl != nil {
		b.nl.Close()
	}
	for _, s := range []*rtnl{b.rt, b.ct, b.elements} {
		if s != nil {
			s.Close()
		}
	}
	if b.hostNS.IsOpen() {
		b.hostNS.Close()
	}
}
