package rules

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/nftables"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/network/podnet"
)

// What is in the table follows from what is wanted, and from nothing else. It is pure.
func TestShape(t *testing.T) {
	plain := Config{Network: podnet.Network{Name: "b0"}}
	four := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}
	always := map[string]int{"hostports": 4, "prerouting": 1, "output": 1, "postrouting": 3, "guard": 8, "invalid-in": 7, "invalid-out": 2, "sources": 4}
	with := func(more map[string]int) map[string]int {
		all := maps.Clone(always)
		maps.Copy(all, more)
		return all
	}
	without := maps.Clone(always)
	delete(without, "sources")
	both := Config{Network: podnet.Network{Name: "b0"}, DNS: []netip.Addr{netip.MustParseAddr("10.43.0.10"), netip.MustParseAddr("fd43::10")}, OwnPorts: []network.OwnPort{{Protocol: "TCP", Port: 6443}}}
	for what, c := range map[string]struct {
		cfg  Config
		w    wanted
		want map[string]int
	}{
		"one range":          {plain, wanted{ranges: four}, always},
		"both families":      {plain, wanted{ranges: append(slices.Clone(four), netip.MustParsePrefix("fd01::/64"))}, with(map[string]int{"postrouting": 6})},
		"no source guard":    {Config{Network: podnet.Network{Name: "b0"}, NoSourceGuard: true}, wanted{ranges: four}, without},
		"bounds":             {plain, wanted{ranges: four, limit: boundOf(nil, 1000)}, with(map[string]int{"connections": 6, "counted4": 2, "counted6": 2})},
		"a forward guard":    {plain, wanted{ranges: four, forwards: Families{IP4: true}}, with(map[string]int{"forward": 3})},
		"DNS and own ports":  {both, wanted{ranges: four}, with(map[string]int{"hostports": 7, "guard": 10})},
		"forwarding, shared": {both, wanted{ranges: four, shared: true}, with(map[string]int{"hostports": 7})},
	} {
		s := shapeOf(siteOf(c.cfg), c.w)
		if !maps.Equal(s.rules, c.want) {
			t.Errorf("%s: rules by chain %v, want %v", what, s.rules, c.want)
		}
		seen := map[string]bool{}
		for _, p := range s.parts { // a chain is made before there are rules in it
			if p.chain != nil {
				seen[p.chain.Name] = true
			}
			if p.rule != nil && !seen[p.rule.Chain.Name] {
				t.Errorf("%s: a rule in the chain %s, which is not there yet", what, p.rule.Chain.Name)
			}
		}
	}
}

// Leases are elements. One that leaves has no host ports, and is kept in its bounds.
func TestShapeOfLeases(t *testing.T) {
	rec := lease.Lease{
		Interface: "mp1", Addresses: []lease.Address{{Address: netip.MustParsePrefix("10.1.0.2/24")}},
		HostPorts: []network.HostPort{{Protocol: "TCP", HostPort: 80, ContainerPort: 8080}},
	}
	leaving := rec
	leaving.Interface, leaving.Leaving, leaving.Addresses = "mp2", true, []lease.Address{{Address: netip.MustParsePrefix("10.1.0.3/24")}}
	s := shapeOf(siteOf(Config{Network: podnet.Network{Name: "b0"}}), wanted{leases: map[ids.SandboxID]lease.Lease{"a": rec, "b": leaving}})
	got := map[string]int{}
	for _, p := range s.parts {
		if p.set != nil && len(p.elements) > 0 {
			got[p.set.Name] = len(p.elements)
		}
	}
	if want := map[string]int{"any4": 1, "to4": 1, "from4": 2}; !maps.Equal(got, want) {
		t.Errorf("elements by set %v, want %v", got, want)
	}
}

// The node's own chains are none of others'.
func TestOwnChains(t *testing.T) {
	s := siteOf(Config{Network: podnet.Network{Name: "b0"}})
	for _, c := range []struct {
		family nftables.TableFamily
		table  string
		own    bool
	}{{nftables.TableFamilyINet, "b0", true}, {nftables.TableFamilyINet, "b0-services", true}, {nftables.TableFamilyIPv4, "b0", false}, {nftables.TableFamilyINet, "b1", false}} {
		chain := &nftables.Chain{Table: &nftables.Table{Name: c.table, Family: c.family}}
		if s.own(chain) != c.own {
			t.Error(fmt.Sprint(c.family, c.table), "is own:", !c.own)
		}
	}
}
