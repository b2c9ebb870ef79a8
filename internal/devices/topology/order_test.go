package topology

import (
	"strings"
	"testing"

	"monopod.dev/monopod/internal/devices/inventory"
)

func namesOf(devices []inventory.Device) string {
	var names []string
	for _, d := range devices {
		names = append(names, d.Name)
	}
	return strings.Join(names, " ")
}

func TestSplit(t *testing.T) {
	a, err := New(Config{Policy: BestEffort, Nodes: hostOf(0, 4, 9)})
	if err != nil {
		t.Fatal(err)
	}
	// by index:            0    1   2    3    4      5    6
	devices := near("gpu", "4", "", "0", "9", "0+4", "7", "4")
	for _, tc := range []struct {
		name                        string
		nodes                       []int
		aligned, unaligned, unknown string
	}{
		{name: "nothing to align", unknown: "0 1 2 3 4 5 6"},
		{name: "one node", nodes: []int{4}, aligned: "0 4 6", unaligned: "2 3", unknown: "1 5"},
		{name: "two nodes", nodes: []int{0, 9}, aligned: "2 3 4", unaligned: "0 6", unknown: "1 5"},
		{name: "all nodes", nodes: []int{0, 4, 9}, aligned: "0 2 3 4 6", unknown: "1 5"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := a.Split(devices, Affinity{Mask: a.maskOf(tc.nodes)})
			if namesOf(c.Aligned) != tc.aligned || namesOf(c.Unaligned) != tc.unaligned || namesOf(c.Unknown) != tc.unknown {
				t.Errorf("aligned %q, unaligned %q, unknown %q", namesOf(c.Aligned), namesOf(c.Unaligned), namesOf(c.Unknown))
			}
			want := strings.Join(strings.Fields(tc.aligned+" "+tc.unaligned+" "+tc.unknown), " ")
			if got := namesOf(c.Ordered()); got != want {
				t.Errorf("ordered %q, want %q", got, want)
			}
		})
	}
}

// TestOffer: a plugin's preference is asked among the aligned devices as long as these suffice, and beyond that only about the rest.
func TestOffer(t *testing.T) {
	a, err := New(Config{Policy: BestEffort, Nodes: hostOf(0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	c := a.Split(near("gpu", "0", "1", "", "1"), Affinity{Mask: a.maskOf([]int{1})})
	for _, tc := range []struct {
		n               int
		available, must string
	}{
		{n: 1, available: "1 3"},
		{n: 2, available: "1 3 0 2", must: "1 3"},
		{n: 3, available: "1 3 0 2", must: "1 3"},
	} {
		if available, must := c.Offer(tc.n); namesOf(available) != tc.available || namesOf(must) != tc.must {
			t.Errorf("%d: %q with %q, want %q with %q", tc.n, namesOf(available), namesOf(must), tc.available, tc.must)
		}
	}
	all := a.Split(near("gpu", "0", "1"), Affinity{})
	if available, must := all.Offer(1); namesOf(available) != "0 1" || len(must) > 0 {
		t.Errorf("with nothing to align: %q with %q", namesOf(available), namesOf(must))
	}
}
