package topology

import (
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

// hostOf is a host whose nodes are all equally far from each other.
func hostOf(ids ...int) []Node {
	var nodes []Node
	for i, id := range ids {
		n := Node{ID: id, Distances: slices.Repeat([]int{20}, len(ids))}
		n.Distances[i] = 10
		nodes = append(nodes, n)
	}
	return nodes
}

func nodesUpTo(n int) []Node {
	var ids []int
	for id := range n {
		ids = append(ids, id)
	}
	return hostOf(ids...)
}

func TestNew(t *testing.T) {
	noDistances := []Node{{ID: 0}, {ID: 1}}
	for _, tc := range []struct {
		name string
		cfg  Config
		// fails are words of the error; none: it succeeds. host: it is the host that does not fit.
		fails []string
		host  bool
	}{
		{name: "nothing said is policy none"},
		{name: "every option", cfg: Config{Policy: Restricted, Scope: PerPod, Nodes: hostOf(0, 1), Options: map[string]string{OptionClosest: "true", OptionMaxNodes: "8"}}},
		{name: "a host without NUMA nodes", cfg: Config{Policy: SingleNUMANode}},
		{name: "node ids with gaps, beyond 63", cfg: Config{Policy: Restricted, Nodes: hostOf(0, 8, 252, 255), Options: map[string]string{OptionClosest: "true"}}},
		{name: "eight nodes need no option", cfg: Config{Policy: BestEffort, Nodes: nodesUpTo(8)}},
		{name: "nine with the option", cfg: Config{Policy: BestEffort, Nodes: nodesUpTo(9), Options: map[string]string{OptionMaxNodes: "9"}}},
		{name: "an option of more than can be weighed, where the host has fewer", cfg: Config{Policy: BestEffort, Nodes: nodesUpTo(16),
			Options: map[string]string{OptionMaxNodes: "64"}}},
		{name: "any number of nodes, any distances with none", cfg: Config{Policy: None, Nodes: make([]Node, 100), Options: map[string]string{OptionClosest: "true"}}},
		{name: "no distances where none are compared", cfg: Config{Policy: Restricted, Nodes: noDistances}},
		{name: "no distances between single nodes", cfg: Config{Policy: SingleNUMANode, Nodes: noDistances, Options: map[string]string{OptionClosest: "true"}}},

		{name: "unknown policy", cfg: Config{Policy: "strict"}, fails: []string{`"strict"`, string(SingleNUMANode)}},
		{name: "unknown scope", cfg: Config{Scope: "node"}, fails: []string{`"node"`, string(PerPod)}},
		{name: "unknown option, also with none", cfg: Config{Options: map[string]string{"prefer-closest": "true"}}, fails: []string{`"prefer-closest"`, OptionClosest}},
		{name: "prefer-closest-numa-nodes is a truth value", cfg: Config{Options: map[string]string{OptionClosest: "near"}}, fails: []string{OptionClosest, `"near"`}},
		{name: "max-allowable-numa-nodes is a number", cfg: Config{Options: map[string]string{OptionMaxNodes: "true"}}, fails: []string{OptionMaxNodes, `"true"`}},
		{name: "max-allowable-numa-nodes is not below the default", cfg: Config{Options: map[string]string{OptionMaxNodes: "7"}}, fails: []string{OptionMaxNodes, `"7"`, "8"}},
		{name: "nine nodes without the option", cfg: Config{Policy: BestEffort, Nodes: nodesUpTo(9)}, host: true,
			fails: []string{"9 NUMA nodes", "at most 8", OptionMaxNodes + " to 9", "none"}},
		{name: "more nodes than the option", cfg: Config{Policy: Restricted, Nodes: nodesUpTo(12), Options: map[string]string{OptionMaxNodes: "10"}}, host: true,
			fails: []string{"12 NUMA nodes", "at most 10", OptionMaxNodes + " to 12"}},
		{name: "more nodes than can be weighed", cfg: Config{Policy: Restricted, Nodes: nodesUpTo(17), Options: map[string]string{OptionMaxNodes: "64"}}, host: true,
			fails: []string{"17 NUMA nodes", "at most 16", OptionMaxNodes, "none"}},
		{name: "a node twice", cfg: Config{Policy: Restricted, Nodes: []Node{{ID: 1}, {ID: 0}, {ID: 1}}}, fails: []string{"node 1"}},
		{name: "a node below zero", cfg: Config{Policy: Restricted, Nodes: []Node{{ID: -1}}}, fails: []string{"node -1"}},
		{name: "no distances to compare", cfg: Config{Policy: Restricted, Nodes: noDistances, Options: map[string]string{OptionClosest: "true"}}, host: true,
			fails: []string{"node 0", "0 distances", OptionClosest}},
		{name: "a distance too many", cfg: Config{Policy: BestEffort, Nodes: []Node{{ID: 0, Distances: []int{10}}, {ID: 1, Distances: []int{20, 10, 20}}},
			Options: map[string]string{OptionClosest: "true"}}, host: true, fails: []string{"node 0", "1 distances", "2 nodes"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, err := New(tc.cfg)
			if tc.fails == nil {
				if err != nil {
					t.Fatal(err)
				}
				if a.Policy() == "" || a.Scope() == "" {
					t.Fatalf("policy %q, scope %q", a.Policy(), a.Scope())
				}
				return
			}
			if err == nil {
				t.Fatal("it is accepted")
			}
			if errdefs.IsFailedPrecondition(err) != tc.host || errdefs.IsInvalidArgument(err) == tc.host {
				t.Errorf("class of %v", err)
			}
			for _, word := range tc.fails {
				if text := err.Error(); !strings.Contains(text, word) {
					t.Errorf("%q does not say %q", text, word)
				}
			}
		})
	}
}

// TestMaskNamesNodesByID: ids with gaps come back as they were, and those of other hosts are not known.
func TestMaskNamesNodesByID(t *testing.T) {
	a, err := New(Config{Policy: Restricted, Nodes: hostOf(255, 0, 8)})
	if err != nil {
		t.Fatal(err)
	}
	if got := a.IDs(a.maskOf([]int{255, 7, 0, -1, 255})); !slices.Equal(got, []int{0, 255}) {
		t.Errorf("nodes %v", got)
	}
	if got := a.IDs(a.everyNode()); !slices.Equal(got, []int{0, 8, 255}) {
		t.Errorf("all nodes %v", got)
	}
}
