package sourceaddress

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// TestTheAddressIsFollowed: it comes late, goes, and comes back as another, at which the agent cannot serve at once.
func TestTheAddressIsFollowed(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var host atomic.Pointer[[]string]
	set := func(ips ...string) { host.Store(&ips) }
	set()
	tell := make(chan struct{})
	f := follower{
		look: func() []string { return *host.Load() }, log: slog.New(slog.DiscardHandler),
		hear: func(ctx context.Context, news chan<- struct{}) {
			for ctx.Err() == nil {
				select {
				case <-ctx.Done():
				case <-tell:
					news <- struct{}{}
				}
			}
		},
	}
	type serves struct {
		ips   []string
		first bool
	}
	runs, certified, done := make(chan serves), make(chan []string, 8), make(chan error, 1)
	var refused atomic.Bool
	go func() {
		done <- f.follow(ctx, []string{"127.0.0.1"}, func(ips []string) error {
			certified <- ips
			return nil
		}, func(ctx context.Context, ips []string, first bool) error {
			if slices.Equal(ips, []string{"10.0.0.3"}) && refused.CompareAndSwap(false, true) {
				return errors.New("cannot assign requested address")
			}
			select {
			case runs <- serves{ips, first}:
			case <-ctx.Done():
			}
			<-ctx.Done()
			return nil
		})
	}()
	expect := func(first bool, ip string) {
		t.Helper()
		select {
		case got := <-runs:
			if !slices.Equal(got.ips, []string{ip}) || got.first != first {
				t.Fatalf("it runs at %v, first %v; want %s", got.ips, got.first, ip)
			}
		case <-ctx.Done():
			t.Fatalf("it does not run at %s", ip)
		}
	}
	expect(true, "127.0.0.1")
	set("10.0.0.2")
	tell <- struct{}{}
	expect(false, "10.0.0.2")
	set()
	tell <- struct{}{} // nothing is to be done
	set("10.0.0.3")
	tell <- struct{}{}
	expect(false, "10.0.0.3")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	close(certified)
	var all [][]string
	for ips := range certified {
		all = append(all, ips)
	}
	if len(all) != 2 || all[0][0] != "10.0.0.2" || all[1][0] != "10.0.0.3" {
		t.Errorf("certificates were made for %v", all)
	}
}
