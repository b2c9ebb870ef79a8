package node

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/host/sourceaddress"
)

// followAddresses runs the agent at the node's addresses, and anew at others when these come late or change, as with DHCP. The pods run on: an agent that
// starts takes over what there is. The world is told before that. Configured addresses stay.
func followAddresses(ctx context.Context, a *v1alpha1.Agent, w *agentWorld, log *slog.Logger, run sourceaddress.Run) error {
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
	return sourceaddress.Follow(ctx, ips, changed, run, log)
}

// agentAddress is where the agent's API is served: the configured address, else the first of the node's own.
func agentAddress(a *v1alpha1.Agent, ips []string) string {
	if a.Address != "" {
		return a.Address
	}
	return ips[0]
}

// fixed says that the agent's configured address is the node's.
func fixed(a *v1alpha1.Agent) bool {
	ip, err := netip.ParseAddr(a.Address)
	return err == nil && !ip.IsUnspecified()
}

// nodeIPs are the node's own addresses, at least one: those that are configured, else the agent's own, else those from which the host reaches others,
// else loopback. Those that are not configured may change: see followAddresses.
func nodeIPs(a *v1alpha1.Agent) []string {
	if ips := a.NodeIPs; len(ips) > 0 {
		return ips
	}
	if ip, err := netip.ParseAddr(a.Address); err == nil && !ip.IsUnspecified() {
		return []string{ip.String()}
	}
	if ips := sourceaddress.Now(); len(ips) > 0 {
		return ips
	}
	return []string{"127.0.0.1"}
}

// agentNames are the addresses that the agent's certificate is for.
func agentNames(a *v1alpha1.Agent, ips []string) []string {
	if at, err := netip.ParseAddr(a.Address); err == nil && !at.IsUnspecified() && at.String() != ips[0] {
		return append([]string{at.String()}, ips...)
	}
	return ips
}
