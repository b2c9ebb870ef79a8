package bridge

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/network/lease"
)

// UpdatePodCIDR sets the ranges that new sandboxes get their addresses from (CRI: RuntimeConfig's pod_cidr), one of each
// family that they shall have. Sandboxes that are there keep their addresses. The ranges are on disk before they are used,
// and hold until the next update, or until the configuration's own ranges change. It is idempotent.
//
// Errors: InvalidArgument (ranges that cannot be), FailedPrecondition (a range overlaps an address or a route of the host,
// or another range that pods have; IPv6 on a host without it).
func (b *Bridge) UpdatePodCIDR(ctx context.Context, ranges []netip.Prefix) error {
	ranges, err := lease.CheckRanges(ranges)
	if err != nil {
		return err
	}
	if err := checkIPv6(ranges); err != nil {
		return err
	}
	b.updateMu.Lock()
	defer b.updateMu.Unlock()
	if slices.Equal(ranges, b.ledger.Ranges()) {
		return nil
	}
	if err := b.host.check(ctx, ranges); err != nil {
		return err
	}
	for _, r := range ranges {
		for _, used := range b.ledger.UsedRanges() {
			if r != used && r.Overlaps(used) {
				return fmt.Errorf("network: pod range %s overlaps %s, of which pods of this node have addresses: take another range, or remove the pods first: %w",
					r, used, errdefs.ErrFailedPrecondition)
			}
		}
	}
	before := b.ledger.Ranges()
	err = b.host.note(func(n *hostNote) bool {
		n.Updated, n.Configured = ranges, b.configured
		return true
	})
	if err != nil {
		return err
	}
	// The bridge and the rules serve the old ranges as long as a sandbox has an address of them.
	b.ledger.SetRanges(ranges)
	if err := b.host.prepare(); err != nil {
		b.ledger.SetRanges(before) // so that a retry does it
		return err
	}
	b.log.InfoContext(ctx, "new sandboxes get addresses of other ranges", "ranges", ranges, "before", before)
	return nil
}
