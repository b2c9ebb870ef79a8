package node

import (
	"net/netip"
	"slices"
	"testing"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/apiserver"
	"monopod.dev/monopod/internal/apiserver/tokens"
	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/runtime/container/hostfacts"
)

// The configuration allows as many shares as a spec's annotation.
func TestSharesAreBoundedAlike(t *testing.T) {
	if v1alpha1.MaxDeviceShares != inventory.MaxShares {
		t.Errorf("%d in the configuration, %d in specs", v1alpha1.MaxDeviceShares, inventory.MaxShares)
	}
}

// TestDefaultsAreTheRoles: what a role takes when it is told nothing is what the configuration tells it by default.
func TestDefaultsAreTheRoles(t *testing.T) {
	var c v1alpha1.NodeConfiguration
	config.Default(&c, "h")
	if pods := netip.MustParsePrefix(config.DefaultPodCIDR); pods != lease.DefaultIPv4 {
		t.Errorf("pods: %s in the configuration, %s on the network", pods, lease.DefaultIPv4)
	}
	if got, want := c.APIServer.ServiceCIDRs, []string{apiserver.DefaultServiceCIDR.String()}; !slices.Equal(got, want) {
		t.Errorf("services: %v in the configuration, %v in the API server", got, want)
	}
	if got, want := c.APIServer.ServiceAccountIssuers, []string{tokens.DefaultIssuer}; !slices.Equal(got, want) {
		t.Errorf("issuers: %v in the configuration, %v in the API server", got, want)
	}
	c.Runtime.Handlers = []v1alpha1.RuntimeHandler{{Name: hostfacts.NativeHandler, Path: "/r", Root: "/r"}}
	if config.Validate(&c) == nil {
		t.Errorf("a runtime handler may be called %s, as the runtime's own is", hostfacts.NativeHandler)
	}
}
