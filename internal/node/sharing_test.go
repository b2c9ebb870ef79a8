package node

import (
	"testing"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/devices/inventory"
)

// The configuration allows as many shares as a spec's annotation.
func TestSharesAreBoundedAlike(t *testing.T) {
	if v1alpha1.MaxDeviceShares != inventory.MaxShares {
		t.Errorf("%d in the configuration, %d in specs", v1alpha1.MaxDeviceShares, inventory.MaxShares)
	}
}
