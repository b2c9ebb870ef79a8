package bridge

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/network/links"
)

// chooseRanges says which ranges new sandboxes get their addresses from: those that UpdatePodCIDR has set, those of the
// configuration, or else the default; and what the configuration says, in its one form.
func chooseRanges(cfg Config, note hostNote) (configured, ranges []netip.Prefix, err error) {
	if len(cfg.Network.Ranges) > 0 {
		if configured, err = lease.CheckRanges(cfg.Network.Ranges); err != nil {
			return nil, nil, err
		}
		ranges = configured
	} else {
		ranges = []netip.Prefix{lease.DefaultIPv4}
		if links.HasIPv6() {
			ranges = append(ranges, lease.UniqueLocal(machineID(), cfg.Network.Name))
		}
	}
	if len(note.Updated) > 0 && slices.Equal(note.Configured, configured) {
		ranges = note.Updated
	}
	return configured, ranges, checkIPv6(ranges)
}

// checkIPv6 refuses IPv6 ranges on a host without IPv6.
func checkIPv6(ranges []netip.Prefix) error {
	for _, r := range ranges {
		if r.Addr().Is6() && !links.HasIPv6() {
			return fmt.Errorf("network: pod range %s: the host has no IPv6, or cannot forward it: set the sysctls net.ipv6.conf.all.disable_ipv6 and net.ipv6.conf.default.disable_ipv6 to 0, or set network.podCIDRs to an IPv4 range only: %w",
				r, errdefs.ErrFailedPrecondition)
		}
	}
	return nil
}

// machineID is what tells this machine from others.
func machineID() string {
	if raw, err := os.ReadFile("/etc/machine-id"); err == nil && len(raw) > 1 {
		return strings.TrimSpace(string(raw))
	}
	name, _ := os.Hostname()
	return name
}
