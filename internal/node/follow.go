package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/api/config/v1alpha1"
)

const (
	// settles is for how long the host's addresses are to have been the same before they are taken: a change comes in several steps.
	settles = 200 * time.Millisecond
	// Between attempts to go on at an address, or to hear of addresses.
	leastWait, mostWait = 200 * time.Millisecond, 30 * time.Second
)

// followAddresses runs the agent at the node's addresses, and anew at others when these come late or change, as with DHCP. The pods run on: an agent that
// starts takes over what there is. The world is told before that. Configured addresses stay.
func followAddresses(ctx context.Context, a *v1alpha1.Agent, w *agentWorld, log *slog.Logger, run runAt) error {
	ips, changed := nodeIPs(a), w.changed
	if changed == nil {
		changed = func([]string) error { return nil }
	} else if !slices.Equal(ips, w.certified) {
		if err := changed(ips); err != nil {
			return err
		}
	}
	if len(a.NodeIPs) > 0 || fixed(a) {
		return run(ctx, ips, true)
	}
	f := follower{look: sourceAddresses, hear: func(ctx context.Context, news chan<- struct{}) { hearAddresses(ctx, news, log) }, log: log}
	return f.follow(ctx, ips, changed, run)
}

// runAt runs at addresses until ctx ends. first: it is the first time.
type runAt func(ctx context.Context, ips []string, first bool) error

// follower follows the addresses that look finds; hear tells until its context ends that they may have changed.
type follower struct {
	look func() []string
	hear func(ctx context.Context, news chan<- struct{})
	log  *slog.Logger
}

// follow runs at these addresses, and at each that come after them. Without any the last ones stay.
func (f follower) follow(ctx context.Context, ips []string, changed func(ips []string) error, run runAt) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	news := make(chan struct{}, 1)
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		f.hear(ctx, news)
	}()
	defer func() { <-heard }()
	defer cancel()

	wait := leastWait
	for first := true; ; first = false {
		began := time.Now()
		now, err := f.until(ctx, ips, news, func(ctx context.Context) error { return run(ctx, ips, first) })
		if ctx.Err() != nil || first && err != nil {
			return err
		}
		if err != nil {
			// The address may not be usable yet.
			f.log.Error("the agent cannot go on at the node's address; it is tried again", "addresses", ips, "error", err)
			if wait = min(2*wait, mostWait); time.Since(began) > mostWait {
				wait = leastWait
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(wait):
			}
			now = f.look()
		}
		if len(now) == 0 || slices.Equal(now, ips) {
			if err == nil {
				return nil // it has ended by itself
			}
			continue
		}
		f.log.Info("the node's addresses have changed; the agent goes on at the new ones", "before", ips, "now", now)
		ips = now
		if err := changed(ips); err != nil {
			f.log.Error("the agent's certificate is not for the node's new addresses", "addresses", ips, "error", err)
		}
	}
}

// until runs until the host has other addresses, which it returns, or it or ctx ends.
func (f follower) until(ctx context.Context, ips []string, news <-chan struct{}, run func(context.Context) error) (now []string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	settled := time.NewTimer(0) // they may have changed before this
	defer settled.Stop()
	for {
		select {
		case err := <-done:
			return nil, err
		case <-news:
			settled.Reset(settles)
		case <-settled.C:
			if now = f.look(); len(now) == 0 || slices.Equal(now, ips) {
				continue
			}
			cancel()
			return now, <-done
		}
	}
}

// hearAddresses tells of each change of the host's addresses and default routes, until ctx ends.
func hearAddresses(ctx context.Context, news chan<- struct{}, log *slog.Logger) {
	wait := leastWait
	for ctx.Err() == nil {
		begin := time.Now()
		if err := listenForAddresses(ctx, news); err != nil {
			log.Error("a change of the node's addresses may not be seen; it is tried again", "error", err)
		}
		if wait = min(2*wait, mostWait); time.Since(begin) > mostWait {
			wait = leastWait
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// listenForAddresses ends when the kernel has lost events.
func listenForAddresses(ctx context.Context, news chan<- struct{}) error {
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
	for range from { //nolint:revive // it is thrown away
	}
}
