package sourceaddress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/wait"
)

// hear tells of each change of the host's addresses and default routes, until ctx ends.
func hear(ctx context.Context, news chan<- struct{}, log *slog.Logger) {
	pauses := wait.Pauses{Least: leastWait, Most: mostWait}
	for ctx.Err() == nil {
		if err := listen(ctx, news); err != nil {
			log.Error("a change of the node's addresses may not be seen; it is tried again", "error", err)
		}
		_ = pauses.For(ctx) // its end is the loop's
	}
}

// listen ends when the kernel has lost events.
func listen(ctx context.Context, news chan<- struct{}) error {
	addresses, routes, stop := make(chan netlink.AddrUpdate, 64), make(chan netlink.RouteUpdate, 64), make(chan struct{})
	var told []func()
	defer func() { // whoever tells ends then, and nobody is left
		close(stop)
		for _, drain := range told {
			drain()
		}
	}()
	failed := make(chan error, 2)
	fails := func(err error) {
		select {
		case failed <- err:
		default:
		}
	}
	if err := netlink.AddrSubscribeWithOptions(addresses, stop, netlink.AddrSubscribeOptions{ErrorCallback: fails}); err != nil {
		return fmt.Errorf("events of addresses: %w", err)
	}
	told = append(told, func() { drain(addresses) })
	if err := netlink.RouteSubscribeWithOptions(routes, stop, netlink.RouteSubscribeOptions{ErrorCallback: fails}); err != nil {
		return fmt.Errorf("events of routes: %w", err)
	}
	told = append(told, func() { drain(routes) })
	tell := func() {
		select {
		case news <- struct{}{}:
		default:
		}
	}
	tell() // of what was before
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case u, open := <-addresses:
			if !open {
				return errors.New("events of addresses have ended")
			}
			if u.Scope == unix.RT_SCOPE_UNIVERSE {
				tell()
			}
		case u, open := <-routes:
			if !open {
				return errors.New("events of routes have ended")
			}
			if ones, _ := maskOf(u.Route); ones == 0 && u.Table == unix.RT_TABLE_MAIN {
				tell()
			}
		}
	}
}

// maskOf is the length of a route's prefix; a default route may have none.
func maskOf(r netlink.Route) (ones, bits int) {
	if r.Dst == nil {
		return 0, 0
	}
	return r.Dst.Mask.Size()
}

// drain takes what comes, until nothing does any more.
func drain[T any](from <-chan T) {
	for range from { // it is thrown away
	}
}
