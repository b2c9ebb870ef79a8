package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/ruleset"
	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/network/links"
	"monopod.dev/monopod/internal/network/rules"
)

// host is what the network has on the host for all sandboxes together: the bridge with the host's addresses, the ranges whose rest is unreachable, forwarding, and the
// rules. It makes them, looks whether they are as they were left, and repairs them as soon as somebody has changed them.
type host struct {
	name       string // the bridge's
	log        *slog.Logger
	ns         netns.NsHandle
	links      *links.Host
	ledger     *lease.Ledger
	places     *places
	rules      *rules.Rules
	notes      *notes
	forwarding *forwarding
	watcher    *ruleset.Watcher // hears of changes of the rule set
	uplink     *links.Watcher

	mu   sync.Mutex // one change of the bridge and of the host's settings at a time
	shut bool       // the way to the host's loopback addresses was closed until the guard is looked at
}

// writes is told by which netlink port rules are written.
func (h *host) writes(port uint32) { h.watcher.SetWriter(port) }

// servedRanges are those that the host is prepared for: of new sandboxes, and of those that are there. An IPv6 range that only
// sandboxes from before have is left out when the host has no IPv6 any more: it must not keep a node from starting.
func (h *host) servedRanges() []netip.Prefix {
	configured := h.ledger.Ranges()
	return slices.DeleteFunc(h.ledger.UsedRanges(), func(r netip.Prefix) bool {
		return r.Addr().Is6() && !slices.Contains(configured, r) && !links.HasIPv6()
	})
}

// gateways are the bridge's addresses: that of each range that is configured or in use, by itself.
func (h *host) gateways() []netip.Prefix {
	var out []netip.Prefix
	for _, r := range h.servedRanges() {
		out = append(out, links.HostPrefix(lease.GatewayOf(r)))
	}
	return out
}

// prepare makes everything on the host as it should be, for all sandboxes together.
func (h *host) prepare() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watcher.SetActive(true)
	return h.prepareLocked()
}

func (h *host) prepareLocked() (err error) {
	// The way to the loopback addresses is open only behind its guard, which has just been found to be there.
	defer func() {
		h.shut = err != nil
		err = errors.Join(err, h.links.Pairs.RouteLocalnet(err == nil))
	}()
	err = h.notes.change(func(n *hostNote) bool { // before it is made
		had := n.Bridge
		n.Bridge = true
		return !had
	})
	if err != nil {
		return err
	}
	if err := h.ensureBridge(); err != nil {
		return fmt.Errorf("network: bridge %s: %w", h.name, err)
	}
	if err := h.forwarding.enable(h.servedRanges()); err != nil {
		return err
	}
	return h.rules.Install()
}

// ensureBridge makes the bridge, and what goes with it.
func (h *host) ensureBridge() error {
	gateways := h.gateways()
	link, err := h.links.Bridge.Ensure(gateways)
	if err != nil {
		return err
	}
	if err := h.followUplink(); err != nil {
		return err
	}
	if err := h.links.Bridge.Serve(link, gateways); err != nil {
		return err
	}
	return h.links.Ways.CloseRanges(h.servedRanges())
}

// followUplink gives the bridge, if there is one, and all that is connected to it the MTU of the uplink. It is called with the lock of the host's settings held.
func (h *host) followUplink() error {
	mtu, index := h.links.Uplink()
	h.uplink.Follow(index)
	bridge, found, err := h.links.Link(h.name)
	if err != nil || !found || bridge.MTU == mtu {
		return err
	}
	h.log.Info("pods get the MTU of the host's network", "mtu", mtu, "before", bridge.MTU)
	errs := []error{h.links.SetMTU(bridge.Index, mtu)}
	for id, rec := range h.ledger.All() {
		port, found, err := h.links.Link(rec.Interface)
		if err != nil || !found || rec.Leaving || port.MTU == mtu {
			continue
		}
		err = h.links.SetMTU(port.Index, mtu)
		if err == nil { // of a sandbox that this process has not met yet Reconcile takes care
			err = h.places.inside(id, func(inside *links.Socket) error { return inside.SetMTU(port.Peer, mtu) })
		}
		if err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("network of sandbox %s: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

// remove takes all of it away.
func (h *host) remove(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watcher.SetActive(false)
	var errs []error
	link, err := h.links.Bridge.Link()
	if err == nil && link != nil && h.links.Bridge.Ours(link) {
		errs = append(errs, h.links.Pairs.Remove(nil))
		err = h.links.Bridge.Remove()
	}
	errs = append(errs, err, h.links.Ways.CloseRanges(nil))
	if err := h.rules.Remove(); err != nil {
		errs = append(errs, err)
	} else {
		errs = append(errs, h.forwarding.restore(ctx))
	}
	return errors.Join(errs...)
}

// note writes down what f makes of the note of what this node has changed on the host.
func (h *host) note(f func(*hostNote) bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.notes.change(f)
}

// forget takes the note away.
func (h *host) forget() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.notes.forget()
}
