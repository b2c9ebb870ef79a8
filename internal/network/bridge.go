package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

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
	// PodCIDR is the IPv4 range of the sandboxes; its first address is the bridge's. At most /30.
	PodCIDR netip.Prefix
	// Table is the name of the nftables table (family inet); empty: the bridge's name.
	Table string
	Log   *slog.Logger
}

// Bridge is the network of one node. All methods are safe for concurrent use.
type Bridge struct {
	log     *slog.Logger
	name    string
	table   string
	prefix  netip.Prefix
	gateway netip.Addr
	owner   string // the bridge's alias: which node made it
	notes   state.Table[hostNote]
	ledger  *ledger
	nl      *netlink.Handle
	locks   sandboxLocks
}

// hostNote is written down before the host is changed, by the bridge's name in the table "network-host".
type hostNote struct {
	// Bridge: this node makes the bridge.
	Bridge bool `json:"bridge"`
	// IPForward: net.ipv4.ip_forward was 0, and this node sets it to 1.
	IPForward bool `json:"ipForward,omitempty"`
}

// New reads the ledger and checks that the range is free. It changes nothing on the host.
//
// Errors: InvalidArgument (a name or range that cannot be), FailedPrecondition (the range overlaps an address or a
// route of the host, or the bridge's name is taken).
func New(ctx context.Context, cfg Config) (*Bridge, error) {
	if err := validate(cfg); err != nil {
		return nil, err
	}
	b := &Bridge{
		log:     cfg.Log,
		name:    cfg.Bridge,
		table:   cfg.Table,
		prefix:  cfg.PodCIDR.Masked(),
		gateway: cfg.PodCIDR.Masked().Addr().Next(),
		owner:   "monopod " + cfg.DB.Path(),
		notes:   state.NewTable[hostNote](cfg.DB, "network-host"),
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
	var err error
	if b.ledger, err = openLedger(ctx, cfg.DB, cfg.Bridge, b.prefix, b.log); err != nil {
		return nil, err
	}
	if b.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("network: no netlink socket: %w", err)
	}
	if err := b.checkHost(ctx); err != nil {
		b.nl.Close()
		return nil, err
	}
	return b, nil
}

// maxAlias is the kernel's limit of an interface's alias, IFALIASZ without the zero.
const maxAlias = 255

func validate(cfg Config) error {
	switch {
	case cfg.Bridge == "" || len(cfg.Bridge) > maxInterfaceName:
		return fmt.Errorf("network: bridge name %q: it must have 1 to %d bytes: %w", cfg.Bridge, maxInterfaceName, errdefs.ErrInvalidArgument)
	case !cfg.PodCIDR.IsValid() || !cfg.PodCIDR.Addr().Is4():
		return fmt.Errorf("network: pod range %q: it must be an IPv4 range such as 10.61.0.0/16: %w", cfg.PodCIDR, errdefs.ErrInvalidArgument)
	case cfg.PodCIDR.Bits() < 8 || cfg.PodCIDR.Bits() > 30:
		return fmt.Errorf("network: pod range %s: its size must be from /8 to /30: %w", cfg.PodCIDR, errdefs.ErrInvalidArgument)
	}
	return nil
}

// Start makes the bridge, the masquerading and the forwarding. It is idempotent.
func (b *Bridge) Start(ctx context.Context) error {
	// Checked again: the caller may have waited since New.
	if err := b.checkHost(ctx); err != nil {
		return err
	}
	if err := b.noteBridge(); err != nil {
		return err
	}
	if err := b.ensureBridge(); err != nil {
		return fmt.Errorf("network: bridge %s: %w", b.name, err)
	}
	if err := b.enableForwarding(); err != nil {
		return err
	}
	fw, err := b.openFirewall()
	if err != nil {
		return err
	}
	if err := fw.install(); err != nil {
		return err
	}
	b.log.InfoContext(ctx, "network ready", "bridge", b.name, "range", b.prefix, "gateway", b.gateway, "inUse", b.ledger.inUse())
	return nil
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

// link returns the bridge, or nil when there is none.
func (b *Bridge) link() (netlink.Link, error) {
	link, err := b.nl.LinkByName(b.name)
	if isNoLink(err) {
		return nil, nil
	}
	return link, err
}

func isNoLink(err error) bool {
	var gone netlink.LinkNotFoundError
	return errors.As(err, &gone)
}

// ensureBridge makes the bridge, or makes the one that is there as it should be.
func (b *Bridge) ensureBridge() error {
	link, err := b.link()
	if err != nil {
		return err
	}
	if link == nil {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = b.name
		attrs.MTU = b.hostMTU()
		// A fixed address: else the bridge takes the lowest of its ports', and changes it under the pods' ARP caches.
		attrs.HardwareAddr = macOf(b.gateway)
		if err := b.nl.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
			return err
		}
		if link, err = b.nl.LinkByName(b.name); err != nil {
			return err
		}
	}
	if link.Attrs().Alias != b.owner {
		if err := b.nl.LinkSetAlias(link, b.owner); err != nil {
			return err
		}
	}
	if err := noIPv6(b.nl, link); err != nil {
		return err
	}
	if err := b.ensureGateway(link); err != nil {
		return err
	}
	return b.nl.LinkSetUp(link)
}

// ensureGateway gives the bridge its address, and takes away those of ranges that nobody uses any more.
func (b *Bridge) ensureGateway(link netlink.Link) error {
	want := netip.PrefixFrom(b.gateway, b.prefix.Bits())
	addrs, err := b.nl.AddrList(link, unix.AF_INET)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		have := prefixOf(a.IPNet)
		if have == want || b.ledger.usesGateway(have.Addr()) {
			continue
		}
		if err := b.nl.AddrDel(link, &a); err != nil {
			return err
		}
	}
	return b.nl.AddrReplace(link, &netlink.Addr{IPNet: ipNet(want)})
}

// hostMTU is the MTU of the interface of the default route, so that a pod's packets fit without being split.
func (b *Bridge) hostMTU() int {
	const ethernet = 1500
	routes, err := b.nl.RouteList(nil, unix.AF_INET)
	if err != nil {
		return ethernet
	}
	for _, r := range routes {
		if !isDefault(r) || r.LinkIndex == 0 {
			continue
		}
		if link, err := b.nl.LinkByIndex(r.LinkIndex); err == nil {
			return link.Attrs().MTU
		}
	}
	return ethernet
}

// Status tells whether the network is as Start left it; the error says what is missing. nil is CRI's NetworkReady.
func (b *Bridge) Status(context.Context) error {
	const again = "restart monopod to repair it"
	link, err := b.link()
	switch {
	case err != nil:
		return fmt.Errorf("network: bridge %s: %w", b.name, err)
	case link == nil:
		return fmt.Errorf("network: bridge %s is not there; %s: %w", b.name, again, errdefs.ErrUnavailable)
	case link.Attrs().Flags&net.FlagUp == 0:
		return fmt.Errorf("network: bridge %s is down; %s: %w", b.name, again, errdefs.ErrUnavailable)
	}
	addrs, err := b.nl.AddrList(link, unix.AF_INET)
	if err != nil {
		return fmt.Errorf("network: bridge %s: %w", b.name, err)
	}
	if !hasAddress(addrs, b.gateway) {
		return fmt.Errorf("network: bridge %s has lost its address %s; %s: %w", b.name, b.gateway, again, errdefs.ErrUnavailable)
	}
	on, err := forwarding()
	if err != nil {
		return err
	}
	if !on {
		return fmt.Errorf("network: %s is 0; something switched it off; %s: %w", ipForwardFile, again, errdefs.ErrUnavailable)
	}
	fw, err := b.openFirewall()
	if err != nil {
		return err
	}
	return fw.check()
}

// Remove takes everything away that the network has made on the host: the ports of all sandboxes, the bridge, the
// nftables table and rules, and net.ipv4.ip_forward when it was this node that set it and nobody else needs it. It
// also empties the ledger. It goes on after an error and returns all of them; it is idempotent.
func (b *Bridge) Remove(ctx context.Context) error {
	var errs []error
	for _, id := range b.ledger.sandboxes() {
		errs = append(errs, b.Teardown(ctx, id))
	}
	link, err := b.link()
	if err == nil && link != nil && b.ours(link) {
		errs = append(errs, b.removePorts(link, nil))
		err = b.nl.LinkDel(link)
	}
	errs = append(errs, err)
	fw, err := b.openFirewall()
	if err == nil {
		err = fw.remove()
	}
	errs = append(errs, err)
	if err == nil {
		errs = append(errs, b.restoreForwarding(ctx, fw))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("network: removing bridge %s: %w", b.name, err)
	}
	if err := b.notes.Delete(b.name); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	return b.ledger.forget()
}

// Close gives the netlink socket back. It changes nothing on the host.
func (b *Bridge) Close() { b.nl.Close() }
