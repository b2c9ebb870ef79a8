package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netns"

	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/host/ruleset"
	"monopod.dev/monopod/internal/network/links"
	"monopod.dev/monopod/internal/network/rules"
)

// open begins to listen for what is to be repaired, in the network namespace of the calling thread. The elements that come and go with sandboxes are not told, and what this node writes else is
// not looked at.
func (h *host) open(ctx context.Context, r *rules.Rules) (err error) {
	h.rules, h.forwarding.others = r, r
	if h.uplink, err = links.Watch(); err != nil {
		return err
	}
	h.watcher, err = ruleset.Watch(ctx, ruleset.WatchConfig{Own: r.PortID(), Judge: r.Concern, Look: h.repair, Wait: h.shutLoopback})
	if err == nil {
		h.uplink.Start(h)
	}
	return err
}

// close ends the listening. Nothing changes on the host.
func (h *host) close() {
	h.uplink.Close()
	if h.watcher != nil {
		h.watcher.Close()
	}
}

// heal looks whether the host is as it was left, and repairs it, if that is still wanted then.
func (h *host) heal(ctx context.Context, wanted func() bool) (repaired bool, err error) {
	missing := h.look()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !wanted() || missing == nil && !h.shut {
		return false, nil
	}
	if missing == nil {
		h.shut = false
		return false, h.links.Pairs.RouteLocalnet(true)
	}
	h.log.WarnContext(ctx, "the network is not as it was left, it is repaired", "error", missing)
	// First of all: what is missing may be the guard.
	err = errors.Join(h.links.Pairs.RouteLocalnet(false), h.prepareLocked())
	if err == nil {
		err = h.reattach()
	}
	if err != nil {
		return true, fmt.Errorf("%w; it could not be repaired: %w", missing, err)
	}
	return true, h.look()
}

// look says what of the host is not as it should be.
func (h *host) look() error {
	if err := h.links.Bridge.Missing(h.gateways()); err != nil {
		return err
	}
	if err := h.forwarding.missing(h.servedRanges()); err != nil {
		return err
	}
	return h.rules.Verify()
}

// reattach makes the ways to the sandboxes again, after the bridge was made anew: without the gateway's address the kernel has taken them away.
func (h *host) reattach() error {
	bridge, found, err := h.links.Link(h.name)
	if err != nil || !found {
		return err
	}
	var errs []error
	for id, rec := range h.ledger.All() {
		if rec.Leaving {
			continue
		}
		if err := h.links.Pairs.Reattach(rec, bridge); err != nil {
			errs = append(errs, fmt.Errorf("network of sandbox %s: interface %s: %w", id, rec.Interface, err))
		}
	}
	return errors.Join(errs...)
}

// repair makes what is not as it should be so.
func (h *host) repair(ctx context.Context) (repaired bool) {
	err := onHost(h.ns, func() (err error) {
		repaired, err = h.heal(ctx, h.watcher.Active)
		return err
	})
	if err != nil {
		h.log.ErrorContext(ctx, "the network is not as it should be", "error", err)
	}
	return repaired
}

// shutLoopback closes the way to the host's loopback addresses until the guard is looked at.
func (h *host) shutLoopback() {
	err := onHost(h.ns, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.watcher.Active() {
			return nil
		}
		h.shut = true
		return h.links.Pairs.RouteLocalnet(false)
	})
	if err != nil {
		h.log.Error("pods may reach the host's loopback addresses", "error", err)
	}
}

// Needs implements links.Follower. There is to be a route: to a sandbox that is connected, or for a range. With the interface of one that leaves its routes go by themselves.
func (h *host) Needs(to netip.Prefix) bool {
	if !to.IsSingleIP() {
		return true
	}
	return h.ledger.Holds(to.Addr())
}

// RoutesGone implements links.Follower: it makes the routes again that should be there: network managers take away what they have not made. Those of sandboxes that leave go by themselves.
func (h *host) RoutesGone() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.watcher.Active() {
		return
	}
	missing, err := h.links.Ways.Missing(h.servedRanges(), h.ledger.All())
	if err == nil && len(missing) > 0 {
		h.log.Warn("somebody has taken routes to pods away; they are made anew", "routes", missing)
		err = errors.Join(h.links.Ways.CloseRanges(h.servedRanges()), h.reattach())
	}
	if err != nil {
		h.log.Error("routes to pods are missing", "error", err)
	}
}

// UplinkChanged implements links.Follower: the bridge follows, where it is at work.
func (h *host) UplinkChanged() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.watcher.Active() {
		return
	}
	if err := h.followUplink(); err != nil {
		h.log.Error("pods have not the MTU of the host's network", "error", err)
	}
}

// onHost calls f on a thread that is in the host's network namespace, whose sysctls it sees then.
func onHost(at netns.NsHandle, f func() error) error {
	return ns.Run(fmt.Sprintf("/proc/self/fd/%d", int(at)), ns.Network, f)
}
