package topology

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/devices/inventory"
)

// want is what a policy makes of requests: nodes as near writes them, with a star when preferred; "refused"; "-" when there is nothing to align.
func TestAlignByPolicy(t *testing.T) {
	free := func(resource string, count int, nodes ...string) Request {
		devices := near(resource, nodes...)
		return Request{Resource: resource, Count: count, Devices: devices, Available: devices}
	}
	// some is like free, but only these of the devices are free.
	some := func(req Request, indexes ...int) Request {
		req.Available = pick(req.Devices, indexes...)
		return req
	}
	for _, tc := range []struct {
		name                           string
		host                           []Node // two nodes where none is said
		reqs                           []Request
		bestEffort, restricted, single string
	}{
		{name: "no request", bestEffort: "-*", restricted: "-*", single: "-*"},
		{name: "nobody knows a node", reqs: []Request{free("gpu", 1, "", ""), free("nic", 1, "")}, bestEffort: "-*", restricted: "-*", single: "-*"},
		{name: "a host without nodes", host: []Node{}, reqs: []Request{free("gpu", 1, "0", "1")}, bestEffort: "-*", restricted: "-*", single: "-*"},
		{name: "a host of one node", host: hostOf(0), reqs: []Request{free("gpu", 1, "0")}, bestEffort: "0*", restricted: "0*", single: "0*"},
		{name: "one device, either node: the lower", reqs: []Request{free("gpu", 1, "1", "0")}, bestEffort: "0*", restricted: "0*", single: "0*"},
		{name: "the second resource decides", reqs: []Request{free("gpu", 1, "0", "1"), free("nic", 1, "1")}, bestEffort: "1*", restricted: "1*", single: "1*"},
		{name: "whoever has no preference does not decide", reqs: []Request{free("fuse", 1, ""), free("gpu", 1, "1")}, bestEffort: "1*", restricted: "1*", single: "1*"},
		{name: "what needs both nodes is preferred on both", reqs: []Request{free("gpu", 2, "0", "1")}, bestEffort: "0+1*", restricted: "0+1*", single: "refused"},
		{name: "both nodes because one is partly taken", reqs: []Request{some(free("gpu", 2, "0", "0", "1", "1"), 0, 2)}, bestEffort: "0+1", restricted: "refused", single: "refused"},
		{name: "two resources that prefer different nodes", reqs: []Request{free("gpu", 1, "0"), free("nic", 1, "1")}, bestEffort: "0+1", restricted: "refused", single: "refused"},
		{name: "two resources whose free devices have no node in common, and one gets its own", reqs: []Request{some(free("gpu", 1, "0", "1"), 0), some(free("nic", 1, "0", "1"), 1)},
			bestEffort: "0", restricted: "refused", single: "refused"},
		{name: "one needs both nodes, the other prefers one of them", reqs: []Request{free("gpu", 2, "0", "1"), free("nic", 1, "0", "1")},
			// a set that both prefer does not exist: as narrow as the needier one needs, which is both nodes
			bestEffort: "0+1", restricted: "refused", single: "refused"},
		{name: "both need both", reqs: []Request{free("gpu", 2, "0", "1"), free("nic", 2, "0", "1")}, bestEffort: "0+1*", restricted: "0+1*", single: "refused"},
		{name: "some devices do not know their node, and those that do are too few", reqs: []Request{free("gpu", 2, "0", "")}, bestEffort: "0+1", restricted: "refused", single: "refused"},
		{name: "a resource that can't be aligned leaves the others aligned", reqs: []Request{free("gpu", 2, "0", ""), free("nic", 1, "1", "1")},
			bestEffort: "1", restricted: "refused", single: "refused"},
		{name: "too few free, for nobody aligned", reqs: []Request{some(free("gpu", 1, "0"))}, bestEffort: "0+1", restricted: "refused", single: "refused"},
		{name: "a device near to two nodes follows the other resource", reqs: []Request{free("gpu", 1, "0+1"), free("nic", 1, "1")}, bestEffort: "1*", restricted: "1*", single: "1*"},
		{name: "three nodes, two resources of two each, one in common", host: hostOf(0, 1, 2),
			reqs: []Request{free("gpu", 2, "0", "1"), free("nic", 2, "1", "2")}, bestEffort: "1", restricted: "refused", single: "refused"},
		{name: "without a preferred set the neediest says how many nodes", host: hostOf(0, 1, 2, 3),
			reqs: []Request{free("gpu", 3, "0", "1", "2", "3"), some(free("nic", 2, "1", "1", "2", "2", "3", "3"), 0, 2, 4)},
			// nic has to have two nodes of 1 to 3, gpu any three: three nodes are reached by all of nic's with gpu's
			bestEffort: "1+2+3", restricted: "refused", single: "refused"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.host == nil {
				tc.host = hostOf(0, 1)
			}
			for policy, want := range map[Policy]string{None: "-", BestEffort: tc.bestEffort, Restricted: tc.restricted, SingleNUMANode: tc.single} {
				a, err := New(Config{Policy: policy, Nodes: tc.host})
				if err != nil {
					t.Fatal(err)
				}
				if got := outcome(t, a, tc.reqs); got != want {
					t.Errorf("%s: %s, want %s", policy, got, want)
				}
				slices.Reverse(tc.reqs)
				if got := outcome(t, a, tc.reqs); got != want {
					t.Errorf("%s, in the reverse order: %s, want %s", policy, got, want)
				}
			}
		})
	}
}

func outcome(t *testing.T, a *Aligner, reqs []Request) string {
	t.Helper()
	to, err := a.Align(reqs)
	if err != nil {
		var refused *AffinityError
		if !errors.As(err, &refused) || to != (Affinity{}) {
			t.Fatalf("%v, %v", to, err)
		}
		return "refused"
	}
	text := "-"
	if to.Mask != 0 {
		text = nodesOf(a.IDs(to.Mask))
	}
	if to.Preferred {
		text += "*"
	}
	return text
}

// TestClosestNodes: prefer-closest-numa-nodes decides between sets of one size, and only there.
func TestClosestNodes(t *testing.T) {
	// Four nodes, of which 0 and 3 are the closest, then 1 and 2.
	host := []Node{
		{ID: 0, Distances: []int{10, 31, 31, 11}},
		{ID: 1, Distances: []int{31, 10, 12, 31}},
		{ID: 2, Distances: []int{31, 12, 10, 31}},
		{ID: 3, Distances: []int{11, 31, 31, 10}},
	}
	devices := near("gpu", "0", "1", "2", "3")
	for _, tc := range []struct {
		name          string
		count         int
		free          []int
		plain, closer string
	}{
		{name: "neighbours", count: 2, free: []int{0, 1, 2, 3}, plain: "0+1*", closer: "0+3*"},
		{name: "the next neighbours", count: 2, free: []int{1, 2, 3}, plain: "1+2*", closer: "1+2*"},
		{name: "of equals the lower nodes", count: 3, free: []int{0, 1, 2, 3}, plain: "0+1+2*", closer: "0+1+3*"},
		{name: "no neighbours are left", count: 2, free: []int{0, 2}, plain: "0+2*", closer: "0+2*"},
		{name: "fewer nodes before closer ones", count: 1, free: []int{1, 2, 3}, plain: "1*", closer: "1*"},
		{name: "all", count: 4, free: []int{0, 1, 2, 3}, plain: "0+1+2+3*", closer: "0+1+2+3*"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for value, want := range map[string]string{"false": tc.plain, "true": tc.closer} {
				for _, policy := range []Policy{BestEffort, Restricted} {
					a, err := New(Config{Policy: policy, Nodes: host, Options: map[string]string{OptionClosest: value}})
					if err != nil {
						t.Fatal(err)
					}
					req := Request{Resource: "gpu", Count: tc.count, Devices: devices, Available: pick(devices, tc.free...)}
					if got := outcome(t, a, []Request{req}); got != want {
						t.Errorf("%s, %s=%s: %s, want %s", policy, OptionClosest, value, got, want)
					}
				}
			}
		})
	}
}

// TestClosestNodesWithGaps: distances are by the order of the nodes, not by their numbers, which may be larger than there are distances.
func TestClosestNodesWithGaps(t *testing.T) {
	host := []Node{{ID: 250, Distances: []int{40, 12, 10}}, {ID: 0, Distances: []int{10, 40, 40}}, {ID: 8, Distances: []int{40, 10, 12}}}
	a, err := New(Config{Policy: Restricted, Nodes: host, Options: map[string]string{OptionClosest: "true"}})
	if err != nil {
		t.Fatal(err)
	}
	devices := near("gpu", "0", "8", "250")
	if got := outcome(t, a, []Request{{Resource: "gpu", Count: 2, Devices: devices, Available: devices}}); got != "8+250*" {
		t.Errorf("%s, want the neighbours 8 and 250", got)
	}
}

func TestRefusal(t *testing.T) {
	gpus, nics := near("vendor.com/gpu", "0", "0", "1", "1"), near("vendor.com/nic", "1")
	var many []inventory.Device
	for range 6 {
		many = append(many, near("vendor.com/port", "0", "1", "2", "3", "4", "5")...)
	}
	requests := []Request{
		{Resource: "vendor.com/gpu", Count: 2, Devices: gpus, Available: pick(gpus, 0, 1, 2)},
		{Resource: "vendor.com/fuse", Count: 1, Devices: near("vendor.com/fuse", ""), Available: near("vendor.com/fuse", "")},
		{Resource: "vendor.com/nic", Count: 1, Devices: nics, Available: nics},
	}
	for _, tc := range []struct {
		name   string
		policy Policy
		scope  Scope
		reqs   []Request
		want   string
	}{
		{name: "two that do not meet", policy: SingleNUMANode, reqs: requests,
			want: "topology policy single-numa-node finds no NUMA nodes for the devices of this container: 2 vendor.com/gpu from 0; " +
				"1 vendor.com/nic from 1 (free devices there, or use the policy best-effort)"},
		{name: "one that is spread", policy: Restricted, scope: PerPod, reqs: []Request{{Resource: "vendor.com/gpu", Count: 2, Devices: gpus, Available: pick(gpus, 1, 3)}},
			want: "topology policy restricted finds no NUMA nodes for the devices of this pod: 2 vendor.com/gpu now only from 0+1 " +
				"(free devices there, or use the policy best-effort)"},
		{name: "one that knows too little", policy: Restricted, reqs: []Request{{Resource: "vendor.com/gpu", Count: 2, Devices: near("", "0", ""), Available: near("", "0", "")}},
			want: "topology policy restricted finds no NUMA nodes for the devices of this container: " +
				"2 vendor.com/gpu from none, for too few that are free know their node (free devices there, or use the policy best-effort)"},
		{name: "no longer than it has to be", policy: SingleNUMANode, reqs: []Request{{Resource: "vendor.com/port", Count: 1, Devices: many, Available: many},
			{Resource: "vendor.com/gpu", Count: 4, Devices: gpus, Available: gpus}},
			want: "topology policy single-numa-node finds no NUMA nodes for the devices of this container: 1 vendor.com/port from 0 or 1 or 2 or 3 or 2 more; " +
				"4 vendor.com/gpu now only from 0+1 (free devices there, or use the policy best-effort)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, err := New(Config{Policy: tc.policy, Scope: tc.scope, Nodes: nodesUpTo(6)})
			if err != nil {
				t.Fatal(err)
			}
			_, err = a.Align(tc.reqs)
			var refused *AffinityError
			if !errors.As(err, &refused) || !errdefs.IsFailedPrecondition(err) {
				t.Fatalf("%v", err)
			}
			if got := refused.Error(); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			// These are an API: people's scripts, and Kubernetes' own tests, look for them.
			if refused.Reason() != "TopologyAffinityError" || refused.Message() != "Resources cannot be allocated with Topology locality" {
				t.Errorf("reason %q, message %q", refused.Reason(), refused.Message())
			}
			if refused.Policy != tc.policy || slices.ContainsFunc(refused.Wants, func(w Want) bool { return strings.HasSuffix(w.Resource, "fuse") }) {
				t.Errorf("%+v", refused)
			}
		})
	}
}
