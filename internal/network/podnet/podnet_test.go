package podnet

import (
	"slices"
	"testing"
)

// Each network's interfaces have a group of their own, which is a node's, and none of those that all nodes share.
func TestPortGroup(t *testing.T) {
	seen := map[uint32]bool{}
	for _, name := range []string{"monopod0", "monopod1", "b", ""} {
		g := Network{Name: name}.PortGroup()
		if !OfNodes(g) || g == LeavingGroup || g == BridgeGroup || seen[g] {
			t.Errorf("%q has the group %#x", name, g)
		}
		seen[g] = true
	}
	if OfNodes(0) {
		t.Error("an interface without a group is a node's")
	}
}

// What a host has of a version before is found by the same names and the same group.
func TestNames(t *testing.T) {
	n := Networks{{Name: "monopod0"}, {Name: "monopod1"}}
	for is, want := range map[string]string{
		n.Mark():          "monopod0",
		n.ServicesTable(): "monopod0-services",
		n.PolicyTable():   "monopod0-policy",
		n.DNSLink():       "monopod0-dns",
		Networks{{Name: "a-bridge-with15"}}.DNSLink(): "mpdns83caeed421",
		NetworkOf("monopod0-services"):                "monopod0",
		NetworkOf("monopod0"):                         "monopod0",
	} {
		if is != want {
			t.Errorf("%s, want %s", is, want)
		}
	}
	if groups := n.PortGroups(); !slices.Equal(groups, []uint32{0x6d4112c2, 0x6d784e78}) {
		t.Errorf("groups %#x", groups)
	}
}
