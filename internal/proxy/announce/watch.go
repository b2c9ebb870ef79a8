package announce

import (
	"context"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"

	"monopod.dev/monopod/internal/kit/wait"
)

// watch wakes the loop when addresses of the host change, or a link that matters does, until ctx ends. What was before is seen by looking.
func (a *Announcer) watch(ctx context.Context) {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, longestPause) {
		begin := time.Now()
		if err := a.follow(ctx); err != nil {
			a.log.WarnContext(ctx, "the addresses of the host are not watched; trying again", "error", err, "after", pause)
		}
		if time.Since(begin) > longestPause {
			pause = firstPause
		}
		_ = wait.For(ctx, pause) // the loop looks at ctx
	}
}

// follow returns when the kernel has lost events, or cannot tell of any.
func (a *Announcer) follow(ctx context.Context) error {
	links, addresses, stop := make(chan netlink.LinkUpdate, 64), make(chan netlink.AddrUpdate, 64), make(chan struct{})
	linksTold, addressesTold := false, false
	defer func() { // whoever tells ends then, and nobody is left
		close(stop)
		for linksTold {
			_, linksTold = <-links
		}
		for addressesTold {
			_, addressesTold = <-addresses
		}
	}()
	if err := netlink.LinkSubscribeWithOptions(links, stop, netlink.LinkSubscribeOptions{Namespace: &a.ns}); err != nil {
		return fmt.Errorf("events of interfaces: %w", err)
	}
	linksTold = true
	if err := netlink.AddrSubscribeWithOptions(addresses, stop, netlink.AddrSubscribeOptions{Namespace: &a.ns}); err != nil {
		return fmt.Errorf("events of addresses: %w", err)
	}
	addressesTold = true
	a.poke()
	for {
		select {
		case <-ctx.Done():
			return nil
		case u, open := <-links:
			if !open {
				linksTold = false
				return nil
			}
			if a.matters(int(u.Index)) {
				a.poke()
			}
		case u, open := <-addresses:
			if !open {
				addressesTold = false
				return nil
			}
			if !u.LinkAddress.IP.IsLinkLocalUnicast() { // as each interface of a pod gets one
				a.poke()
			}
		}
	}
}
