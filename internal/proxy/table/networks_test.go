package table

import (
	"encoding/binary"
	"testing"

	"github.com/google/nftables/expr"

	"monopod.dev/monopod/internal/network/podnet"
)

// Each network of a node has the rules that the first has, by its own group.
func TestTwoNetworks(t *testing.T) {
	networks := podnet.Networks{{Name: "b0"}, {Name: "b1"}}
	one, two := groupsOf(shapeOf(site{networks: networks[:1]})), groupsOf(shapeOf(site{networks: networks}))
	first, second := networks[0].PortGroup(), networks[1].PortGroup()
	if one[first] != 3 || one[second] != 0 || two[first] != 3 || two[second] != 3 {
		t.Errorf("rules by group: of one network %v, of two %v", one, two)
	}
	if none := groupsOf(shapeOf(site{})); len(none) > 0 {
		t.Errorf("rules by group where others connect pods: %v", none)
	}
}

// groupsOf counts the rules that compare an interface's whole group, by it.
func groupsOf(s *shape) map[uint32]int {
	all := map[uint32]int{}
	for _, r := range s.rules {
		if len(r.exprs) < 2 {
			continue
		}
		meta, is := r.exprs[0].(*expr.Meta)
		cmp, compared := r.exprs[1].(*expr.Cmp)
		if is && compared && (meta.Key == expr.MetaKeyIIFGROUP || meta.Key == expr.MetaKeyOIFGROUP) {
			all[binary.NativeEndian.Uint32(cmp.Data)]++
		}
	}
	return all
}
