package bridge

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/network/links"
)

// check looks whether the bridge's name and the ranges are free, or ours already.
func (h *host) check(ctx context.Context, ranges []netip.Prefix) error {
	link, err := h.links.Bridge.Link()
	if err != nil {
		return fmt.Errorf("network: bridge %s: %w", h.name, err)
	}
	own := 0
	if link != nil {
		note, err := h.notes.get()
		if err != nil {
			return err
		}
		if link.Type() != "bridge" || !note.Bridge && !h.links.Bridge.Ours(link) {
			return fmt.Errorf("network: %w", h.links.Bridge.Strange(link))
		}
		own = link.Attrs().Index
	}
	uses, err := h.links.Ways.Uses(own)
	if err != nil {
		return fmt.Errorf("network: reading the addresses and routes of the host: %w", err)
	}
	for _, r := range ranges {
		err := overlap(r, uses)
		if err == nil {
			continue
		}
		already := false
		if own != 0 {
			var unread error
			if already, unread = h.links.Bridge.Has(link, lease.GatewayOf(r)); unread != nil {
				return unread
			}
		}
		switch {
		case already:
			// The other use came later (a VPN, say). Pods have addresses of this range by now, and a restart must not be
			// what takes them down.
			h.log.WarnContext(ctx, "the pod range is not only ours any more", "error", err)
		default:
			return fmt.Errorf("network: %w: %w", err, errdefs.ErrFailedPrecondition)
		}
	}
	return nil
}

// overlap returns an error that names the first use that overlaps the range. It is pure. Routes so wide that they are
// default routes in disguise do not count: more specific ranges are what they are for.
func overlap(prefix netip.Prefix, uses []links.Use) error {
	for _, u := range uses {
		if u.Prefix.IsValid() && u.Prefix.Bits() > 4 && u.Prefix.Overlaps(prefix) {
			return fmt.Errorf("pod range %s overlaps the %s; set network.podCIDRs to a range that is free", prefix, u.What)
		}
	}
	return nil
}
