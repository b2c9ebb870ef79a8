package table

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/google/nftables/expr"

	"monopod.dev/monopod/internal/network/podnet"
)

// Packets of each network's pods are judged, by one table.
func TestTwoNetworks(t *testing.T) {
	networks := podnet.Networks{{Name: "b0"}, {Name: "b1"}}
	cfg := Config{Networks: networks}
	var groups []uint32
	for _, one := range (&writer{cfg: cfg}).ports(expr.MetaKeyIIFGROUP) {
		groups = append(groups, binary.NativeEndian.Uint32(one[1].(*expr.Cmp).Data))
	}
	if !slices.Equal(groups, networks.PortGroups()) || cfg.Name() != "b0-policy" {
		t.Errorf("the table %s judges the groups %#x", cfg.Name(), groups)
	}
}
