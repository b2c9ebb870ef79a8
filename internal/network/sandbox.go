package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/failpoint"
)

// Request names the sandbox to connect.
type Request struct {
	SandboxID string
	// NetNS is the path of its network namespace.
	NetNS string
}

// Result is what a connected sandbox has.
type Result struct {
	IPs     []netip.Addr
	Gateway netip.Addr
	// Interface is the name of the interface in the sandbox.
	Interface string
}

// Setup connects the sandbox: loopback up, an address, a default route. It is idempotent: for a sandbox that is
// connected it returns the same, and repairs what is missing. The address is on disk before it is used. When Setup
// fails for a sandbox that had no address before, it leaves nothing.
//
// Errors: ResourceExhausted (the range is used up), NotFound (no such namespace), FailedPrecondition (no bridge: Start
// comes first; or the namespace has an interface of that name).
func (b *Bridge) Setup(ctx context.Context, req Request) (Result, error) {
	if req.SandboxID == "" || req.NetNS == "" {
		return Result{}, fmt.Errorf("network: a sandbox id and a network namespace are needed, got %q and %q: %w",
			req.SandboxID, req.NetNS, errdefs.ErrInvalidArgument)
	}
	unlock := b.locks.lock(req.SandboxID)
	defer unlock()
	rec, fresh, err := b.ledger.assign(req.SandboxID)
	if err != nil {
		return Result{}, fmt.Errorf("network of sandbox %s: %w", req.SandboxID, err)
	}
	if err := failpoint.Hit("network/setup/assigned"); err != nil {
		return Result{}, err
	}
	if err := b.connect(rec, req.NetNS); err != nil {
		if fresh {
			err = errors.Join(err, b.disconnect(req.SandboxID))
		}
		return Result{}, fmt.Errorf("network of sandbox %s: %w", req.SandboxID, err)
	}
	return Result{IPs: []netip.Addr{rec.Address.Addr()}, Gateway: rec.Gateway, Interface: containerInterface}, nil
}

// Teardown disconnects the sandbox and frees its address. It needs no namespace: the host's end of the pair takes the
// other one with it. It is idempotent.
func (b *Bridge) Teardown(_ context.Context, sandboxID string) error {
	unlock := b.locks.lock(sandboxID)
	defer unlock()
	if err := b.disconnect(sandboxID); err != nil {
		return fmt.Errorf("network of sandbox %s: %w", sandboxID, err)
	}
	return nil
}

// disconnect is called with the sandbox's lock held. The address is freed last: until the interface is gone it is in use.
func (b *Bridge) disconnect(sandboxID string) error {
	name := hostInterface(b.name, sandboxID)
	link, err := b.nl.LinkByName(name)
	switch {
	case isNoLink(err):
	case err != nil:
		return fmt.Errorf("interface %s: %w", name, err)
	default:
		if err := b.nl.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("deleting interface %s: %w", name, err)
		}
	}
	if err := failpoint.Hit("network/teardown/disconnected"); err != nil {
		return err
	}
	return b.ledger.release(sandboxID)
}

// connect makes the sandbox's interface and everything about it as the lease says, whatever of it is there already.
func (b *Bridge) connect(rec lease, path string) error {
	ns, err := netns.GetFromPath(path)
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("network namespace %s: %w", path, errdefs.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", path, err)
	}
	defer ns.Close()
	inside, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("%s is no network namespace that can be entered: %w", path, err)
	}
	defer inside.Close()

	bridge, err := b.link()
	if err != nil {
		return err
	}
	if bridge == nil {
		return fmt.Errorf("bridge %s is not there; restart monopod to make it: %w", b.name, errdefs.ErrFailedPrecondition)
	}
	if err := b.ensurePair(rec, bridge, ns, inside); err != nil {
		return fmt.Errorf("interface %s: %w", rec.Interface, err)
	}
	if err := b.ensurePort(rec, bridge); err != nil {
		return fmt.Errorf("interface %s: %w", rec.Interface, err)
	}
	if err := ensureInside(rec, inside); err != nil {
		return fmt.Errorf("interface %s in %s: %w", containerInterface, path, err)
	}
	return nil
}

// ensurePair makes the veth pair, unless it is there. A host's end whose other end is elsewhere (a namespace that was
// lost and made anew) is replaced.
func (b *Bridge) ensurePair(rec lease, bridge netlink.Link, ns netns.NsHandle, inside *netlink.Handle) error {
	peer, err := inside.LinkByName(containerInterface)
	if err != nil && !isNoLink(err) {
		return err
	}
	host, err := b.nl.LinkByName(rec.Interface)
	if err != nil && !isNoLink(err) {
		return err
	}
	if err == nil {
		if peer != nil && host.Attrs().ParentIndex == peer.Attrs().Index && peer.Attrs().ParentIndex == host.Attrs().Index {
			return nil
		}
		if err := b.nl.LinkDel(host); err != nil {
			return err
		}
	}
	if peer != nil {
		return fmt.Errorf("the namespace has an interface %s that is not ours: %w", containerInterface, errdefs.ErrFailedPrecondition)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = rec.Interface
	attrs.MTU = bridge.Attrs().MTU
	return b.nl.LinkAdd(&netlink.Veth{
		LinkAttrs:        attrs,
		PeerName:         containerInterface,
		PeerHardwareAddr: macOf(rec.Address.Addr()),
		PeerNamespace:    netlink.NsFd(ns),
	})
}

// ensurePort makes the host's end a port of the bridge.
func (b *Bridge) ensurePort(rec lease, bridge netlink.Link) error {
	host, err := b.nl.LinkByName(rec.Interface)
	if err != nil {
		return err
	}
	if err := noIPv6(b.nl, host); err != nil {
		return err
	}
	if err := b.nl.LinkSetMaster(host, bridge); err != nil {
		return err
	}
	// A pod may reach itself by an address that leads back through the bridge.
	if err := b.nl.LinkSetHairpin(host, true); err != nil {
		return err
	}
	return b.nl.LinkSetUp(host)
}

// ensureInside configures the sandbox's end.
func ensureInside(rec lease, inside *netlink.Handle) error {
	lo, err := inside.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := inside.LinkSetUp(lo); err != nil {
		return err
	}
	link, err := inside.LinkByName(containerInterface)
	if err != nil {
		return err
	}
	if err := noIPv6(inside, link); err != nil {
		return err
	}
	if err := inside.AddrReplace(link, &netlink.Addr{IPNet: ipNet(rec.Address)}); err != nil {
		return err
	}
	if err := inside.LinkSetUp(link); err != nil {
		return err
	}
	return inside.RouteReplace(&netlink.Route{
		LinkIndex: link.Attrs().Index,
		Dst:       &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)},
		Gw:        rec.Gateway.AsSlice(),
	})
}

// noIPv6 keeps the kernel from giving the interface a link-local address, and with it from duplicate address detection,
// router solicitations and multicast reports, that nobody on this IPv4 network listens to.
func noIPv6(h *netlink.Handle, link netlink.Link) error {
	const none = 1 // IN6_ADDR_GEN_MODE_NONE
	err := h.LinkSetIP6AddrGenMode(link, none)
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil // a kernel, or an interface, without IPv6
	}
	return err
}

// Reconcile makes the ledger and the kernel agree with the sandboxes that live: sandboxID to the path of its network
// namespace. Addresses of others are freed and their interfaces deleted; a live one is connected again as far as it is
// not, and one without a record keeps the address that its namespace shows. It goes on after an error and returns all.
func (b *Bridge) Reconcile(ctx context.Context, live map[string]string) error {
	var errs []error
	for _, id := range b.ledger.sandboxes() {
		if _, ok := live[id]; !ok {
			b.log.InfoContext(ctx, "freeing the address of a sandbox that is gone", "sandbox", id)
			errs = append(errs, b.Teardown(ctx, id))
		}
	}
	for id, path := range live {
		if !b.ledger.has(id) {
			if err := b.adopt(ctx, id, path); err != nil {
				errs = append(errs, fmt.Errorf("network of sandbox %s: %w", id, err))
				continue
			}
		}
		_, err := b.Setup(ctx, Request{SandboxID: id, NetNS: path})
		errs = append(errs, err)
	}
	link, err := b.link()
	if err == nil && link != nil {
		err = b.removePorts(link, b.ledger.interfaces())
	}
	return errors.Join(append(errs, err)...)
}

// adopt writes down the address that a sandbox without a record has. One that has none gets one from Setup later.
func (b *Bridge) adopt(ctx context.Context, sandboxID, path string) error {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", path, err)
	}
	defer ns.Close()
	inside, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", path, err)
	}
	defer inside.Close()
	link, err := inside.LinkByName(containerInterface)
	if isNoLink(err) {
		return nil
	}
	if err != nil {
		return err
	}
	addrs, err := inside.AddrList(link, unix.AF_INET)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		have := prefixOf(a.IPNet)
		if !have.IsValid() {
			continue
		}
		b.log.WarnContext(ctx, "a sandbox had an address without a record; it is written down again", "sandbox", sandboxID, "address", have.Addr())
		return b.ledger.adopt(sandboxID, lease{
			Address:   have,
			Gateway:   have.Masked().Addr().Next(),
			Interface: hostInterface(b.name, sandboxID),
		})
	}
	return nil
}

// removePorts deletes the bridge's ports that are ours by name and are not in keep.
func (b *Bridge) removePorts(bridge netlink.Link, keep map[string]bool) error {
	links, err := b.nl.LinkList()
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range links {
		a := l.Attrs()
		if a.MasterIndex != bridge.Attrs().Index || l.Type() != "veth" || !strings.HasPrefix(a.Name, hostInterfacePrefix) || keep[a.Name] {
			continue
		}
		if err := b.nl.LinkDel(l); err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("deleting interface %s: %w", a.Name, err))
		}
	}
	return errors.Join(errs...)
}

// sandboxLocks serializes the operations on one sandbox.
type sandboxLocks struct {
	mu    sync.Mutex
	locks map[string]*sandboxLock
}

type sandboxLock struct {
	sync.Mutex
	refs int // guarded by sandboxLocks.mu
}

func (s *sandboxLocks) lock(id string) (unlock func()) {
	s.mu.Lock()
	l := s.locks[id]
	if l == nil {
		if s.locks == nil {
			s.locks = map[string]*sandboxLock{}
		}
		l = &sandboxLock{}
		s.locks[id] = l
	}
	l.refs++
	s.mu.Unlock()
	l.Lock()
	return func() {
		l.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		if l.refs--; l.refs == 0 {
			delete(s.locks, id)
		}
	}
}
