package sourceaddress

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"monopod.dev/monopod/internal/kit/wait"
)

const (
	// settles is for how long the host's addresses are to have been the same before they are taken: a change comes in several steps.
	settles = 200 * time.Millisecond
	// Between attempts to go on at an address, or to hear of addresses.
	leastWait, mostWait = 200 * time.Millisecond, 30 * time.Second
)

// Run runs at addresses until ctx ends. first: it is the first time. Whatever it has begun has ended when it returns.
type Run func(ctx context.Context, ips []string, first bool) error

// Follow runs at the host's source addresses, which are ips now, and anew at others when these come late or change, as with DHCP. changed is told before that;
// its error is logged, and stops nothing. Without any address the last ones stay. It ends with ctx, when run ends by itself, and with the error of the first run.
func Follow(ctx context.Context, ips []string, changed func(ips []string) error, run Run, log *slog.Logger) error {
	f := follower{look: Now, hear: func(ctx context.Context, news chan<- struct{}) { hear(ctx, news, log) }, log: log}
	return f.follow(ctx, ips, changed, run)
}

// follower follows the addresses that look finds; hear tells until its context ends that they may have changed.
type follower struct {
	look func() []string
	hear func(ctx context.Context, news chan<- struct{})
	log  *slog.Logger
}

// follow runs at these addresses, and at each that come after them. Without any the last ones stay.
func (f follower) follow(ctx context.Context, ips []string, changed func(ips []string) error, run Run) error {
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

	pauses := wait.Pauses{Least: leastWait, Most: mostWait}
	for first := true; ; first = false {
		now, err := f.until(ctx, ips, news, func(ctx context.Context) error { return run(ctx, ips, first) })
		if ctx.Err() != nil || first && err != nil {
			return err
		}
		if err != nil {
			// The address may not be usable yet.
			f.log.Error("the agent cannot go on at the node's address; it is tried again", "addresses", ips, "error", err)
			if pauses.For(ctx) != nil {
				return nil
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
