package address

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/wait"
)

// Between two repairs there is a pause, which grows while they come one after another: against somebody who takes the addresses away in a
// loop, and for what cannot be repaired.
const (
	leastPause = time.Second
	mostPause  = time.Minute
)

// Run puts the addresses back when they are taken away, until ctx ends, which is no error. The kernel tells of it: nothing is done, and no
// time is spent, while nobody changes interfaces or addresses. repaired is called after each repair.
func (k *Keeper) Run(ctx context.Context, repaired func()) error {
	pauses := wait.Pauses{Least: leastPause, Most: mostPause}
	for ctx.Err() == nil {
		if err := k.follow(ctx); err != nil {
			k.cfg.Log.WarnContext(ctx, "the addresses of the cluster's DNS are not watched; trying again", "error", err)
		}
		if ctx.Err() != nil {
			return nil
		}
		if k.missing() {
			if err := k.Ensure(); err != nil {
				k.cfg.Log.ErrorContext(ctx, "addresses of the cluster's DNS were taken away, and cannot be put back", "error", err)
			} else {
				k.cfg.Log.WarnContext(ctx, "addresses of the cluster's DNS were taken away; they are there again", "addresses", k.cfg.Addresses)
				repaired()
			}
		}
		_ = pauses.For(ctx) // its end is the loop's
	}
	return nil
}

// follow listens until an address is missing, or the kernel has lost events.
func (k *Keeper) follow(ctx context.Context) error {
	links, addresses, stop := make(chan netlink.LinkUpdate, 64), make(chan netlink.AddrUpdate, 64), make(chan struct{})
	var told []func()
	defer func() { // whoever tells ends then, and nobody is left
		close(stop)
		for _, drain := range told {
			drain()
		}
	}()
	if err := netlink.LinkSubscribeWithOptions(links, stop, netlink.LinkSubscribeOptions{Namespace: &k.ns}); err != nil {
		return fmt.Errorf("events of interfaces: %w", err)
	}
	told = append(told, func() { drain(links) })
	if err := netlink.AddrSubscribeWithOptions(addresses, stop, netlink.AddrSubscribeOptions{Namespace: &k.ns}); err != nil {
		return fmt.Errorf("events of addresses: %w", err)
	}
	told = append(told, func() { drain(addresses) })
	// What was taken away before is seen by looking, what is from now on is told.
	for !k.missing() {
		for look := false; !look; {
			select {
			case <-ctx.Done():
				return nil
			case u, open := <-links:
				if !open {
					return nil
				}
				look = u.Link.Attrs().Name == k.Link() && (u.Header.Type == unix.RTM_DELLINK || u.Link.Attrs().Flags&net.FlagUp == 0)
			case u, open := <-addresses:
				if !open {
					return nil
				}
				a, ok := netip.AddrFromSlice(u.LinkAddress.IP)
				look = !u.NewAddr && ok && slices.Contains(k.cfg.Addresses, a.Unmap())
			}
		}
	}
	return nil
}

// drain takes what comes, until nothing does any more.
func drain[T any](from <-chan T) {
	for range from { // it is thrown away
	}
}
