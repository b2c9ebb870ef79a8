package topology

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"monopod.dev/monopod/internal/devices/inventory"
)

// near are devices, each given as the ids of its nodes: "0", "0+1", or "" when it knows none.
func near(resource string, nodes ...string) []inventory.Device {
	var all []inventory.Device
	for i, text := range nodes {
		d := inventory.Device{Resource: resource, Name: fmt.Sprint(i)}
		for _, id := range strings.FieldsFunc(text, func(r rune) bool { return r == '+' }) {
			var n int
			if _, err := fmt.Sscan(id, &n); err != nil {
				panic(err)
			}
			d.NUMA = append(d.NUMA, n)
		}
		all = append(all, d)
	}
	return all
}

func pick(devices []inventory.Device, indexes ...int) []inventory.Device {
	var some []inventory.Device
	for _, i := range indexes {
		some = append(some, devices[i])
	}
	return some
}

// nodesOf writes sets of nodes as near reads them.
func nodesOf(ids []int) string {
	var words []string
	for _, id := range ids {
		words = append(words, fmt.Sprint(id))
	}
	return strings.Join(words, "+")
}

func TestHints(t *testing.T) {
	pair := near("x", "0", "0", "1", "1")
	for _, tc := range []struct {
		name string
		host []Node // two nodes, 0 and 1, where none is said
		req  Request
		any  bool
		want []string // sets of nodes; preferred ones are marked by a star
	}{
		{name: "one device from either node, or from both", req: Request{Count: 1, Devices: pair, Available: pair}, want: []string{"0*", "1*", "0+1"}},
		{name: "more than one node has need both", req: Request{Count: 3, Devices: pair, Available: pair}, want: []string{"0+1*"}},
		{name: "all that one node has", req: Request{Count: 2, Devices: pair, Available: pair}, want: []string{"0*", "1*", "0+1"}},
		{name: "what is taken narrows the choice", req: Request{Count: 2, Devices: pair, Available: pick(pair, 0, 2, 3)}, want: []string{"1*", "0+1"}},
		{name: "both nodes are not preferred when one would do if its devices were free", req: Request{Count: 2, Devices: pair, Available: pick(pair, 0, 2)},
			want: []string{"0+1"}},
		{name: "too few are free", req: Request{Count: 2, Devices: pair, Available: pick(pair, 0)}},
		{name: "too few exist", req: Request{Count: 5, Devices: pair, Available: pair}},
		{name: "a request for none has no preference", req: Request{Devices: pair, Available: pair}, any: true},
		{name: "nothing there", req: Request{Count: 1}, any: true},
		{name: "no device knows its node", req: Request{Count: 1, Devices: near("x", "", ""), Available: near("x", "")}, any: true},
		{name: "nodes that the host does not have are not known", req: Request{Count: 1, Devices: near("x", "7", "-1"), Available: near("x", "7")}, any: true},
		{name: "a device that knows no node counts for none", req: Request{Count: 2, Devices: near("x", "0", "", "1"), Available: near("x", "0", "", "1")},
			want: []string{"0+1*"}},
		{name: "it does not help to fill a request", req: Request{Count: 2, Devices: near("x", "0", ""), Available: near("x", "0", "")}},
		{name: "a device of two nodes is near to each", req: Request{Count: 1, Devices: near("x", "0+1"), Available: near("x", "0+1")}, want: []string{"0*", "1*", "0+1"}},
		{name: "and counts once", req: Request{Count: 2, Devices: near("x", "0+1"), Available: near("x", "0+1")}},
		{name: "nodes without a device of the resource are in no hint", host: hostOf(0, 1, 2), req: Request{Count: 2, Devices: near("x", "2", "0"), Available: near("x", "2", "0")},
			want: []string{"0+2*"}},
		{name: "ids with gaps", host: hostOf(0, 8, 250), req: Request{Count: 1, Devices: near("x", "8", "250"), Available: near("x", "8", "250")},
			want: []string{"8*", "250*", "8+250"}},
		{name: "a host of one node", host: hostOf(0), req: Request{Count: 2, Devices: pick(pair, 0, 1), Available: pick(pair, 0, 1)}, want: []string{"0*"}},
		{name: "a name for all is not counted beside the units", req: Request{Count: 1, Devices: append(near("x", "0"), inventory.Device{Whole: true, NUMA: []int{1}}),
			Available: near("x", "0")}, want: []string{"0*"}},
		{name: "a name for all alone is", req: Request{Count: 1, Devices: []inventory.Device{{Whole: true, NUMA: []int{1}}},
			Available: []inventory.Device{{Whole: true, NUMA: []int{1}}}}, want: []string{"1*"}},

		{name: "what is handed down has to be there", req: Request{Count: 2, Devices: pair, Available: pick(pair, 2, 3), HandedDown: pick(pair, 0)}, want: []string{"0+1"}},
		{name: "and fills the request with what is free", req: Request{Count: 2, Devices: pair, Available: pick(pair, 1, 2, 3), HandedDown: pick(pair, 0)},
			want: []string{"0*", "0+1"}},
		{name: "alone it is enough", req: Request{Count: 1, Devices: pair, HandedDown: pick(pair, 3)}, want: []string{"1*", "0+1"}},
		{name: "more than is asked for leave a choice among them", req: Request{Count: 1, Devices: pair, HandedDown: pick(pair, 0, 2)}, want: []string{"0*", "1*", "0+1"}},
		{name: "one that knows no node is passed over", req: Request{Count: 1, Devices: near("x", "0", ""), Available: near("x", "0"), HandedDown: near("x", "")[:1]},
			want: []string{"0*"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.host == nil {
				tc.host = hostOf(0, 1)
			}
			a, err := New(Config{Policy: BestEffort, Nodes: tc.host})
			if err != nil {
				t.Fatal(err)
			}
			h := a.Hints(tc.req)
			var got []string
			for _, s := range h.Sets {
				text := nodesOf(a.IDs(s.Mask))
				if s.Preferred {
					text += "*"
				}
				got = append(got, text)
			}
			if h.Any != tc.any || !slices.Equal(got, tc.want) {
				t.Errorf("any %v, %q; want any %v, %q", h.Any, got, tc.any, tc.want)
			}
		})
	}
}

func TestNoneHasNoHints(t *testing.T) {
	a, err := New(Config{Nodes: hostOf(0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	devices := near("x", "0", "1")
	if h := a.Hints(Request{Count: 1, Devices: devices, Available: devices}); !h.Any || len(h.Sets) > 0 {
		t.Errorf("%+v", h)
	}
}
