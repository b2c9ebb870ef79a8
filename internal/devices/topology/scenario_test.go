package topology

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"monopod.dev/monopod/internal/devices/inventory"
)

// asks are what a container of these scenarios wants; init and sidecar make init containers of it.
func asks(nic, core int) Container {
	c := Container{Counts: map[string]int{"nic": nic}}
	if core > 0 {
		c.Counts["core"] = core
	}
	return c
}

func initially(c Container) Container { c.Init = true; return c }
func sidecar(c Container) Container   { c.Init, c.Restartable = true, true; return c }

// A pod that is refused, or cannot be had, in the scenarios.
const (
	refused = "refused"
	short   = "short"
)

// TestScenarios are those of Kubernetes' node tests of the topology manager: pods one after another on a host of two nodes, with two virtual functions of a
// network card at each. What those tests take of exclusive cores, which a node does not grant here, is a second resource, of four at each node.
func TestScenarios(t *testing.T) {
	type pods [][]Container
	for _, tc := range []struct {
		name  string
		nics  []string // nodes of the virtual functions, where it is not two at each
		scope Scope
		pods  pods
		// want is the nodes of each container's nics in each pod, by policy.
		want map[Policy][]string
	}{
		{name: "admits one pod with 1 core, 1 device", pods: pods{{asks(1, 1)}},
			want: map[Policy][]string{None: {" 0"}, BestEffort: {" 0"}, Restricted: {" 0"}, SingleNUMANode: {" 0"}}},
		{name: "admits all cores of a node, 1 device", pods: pods{{asks(1, 4)}},
			want: map[Policy][]string{None: {" 0"}, BestEffort: {" 0"}, Restricted: {" 0"}, SingleNUMANode: {" 0"}}},
		{name: "admits two pods, each with 1 core, 1 device", pods: pods{{asks(1, 1)}, {asks(1, 1)}},
			want: map[Policy][]string{None: {" 0", " 0"}, BestEffort: {" 0", " 0"}, Restricted: {" 0", " 0"}, SingleNUMANode: {" 0", " 0"}}},
		{name: "the second pod goes where its cores are", pods: pods{{asks(1, 3)}, {asks(1, 2)}},
			want: map[Policy][]string{None: {" 0", " 0"}, BestEffort: {" 0", " 1"}, Restricted: {" 0", " 1"}, SingleNUMANode: {" 0", " 1"}}},
		{name: "admits one pod with two containers, each with 2 cores, 1 device", pods: pods{{asks(1, 2), asks(1, 2)}},
			want: map[Policy][]string{None: {" 0, 0"}, BestEffort: {" 0, 0"}, Restricted: {" 0, 0"}, SingleNUMANode: {" 0, 0"}}},
		{name: "admits two pods, each with two containers, each with 1 core, 1 device", pods: pods{{asks(1, 1), asks(1, 1)}, {asks(1, 1), asks(1, 1)}},
			want: map[Policy][]string{BestEffort: {" 0, 0", " 1, 1"}, Restricted: {" 0, 0", " 1, 1"}, SingleNUMANode: {" 0, 0", " 1, 1"}}},
		{name: "admits two pods, each with two containers of 2 cores, one of them with 1 device", pods: pods{{asks(1, 2), asks(0, 2)}, {asks(1, 2), asks(0, 2)}},
			want: map[Policy][]string{BestEffort: {" 0,", " 1,"}, Restricted: {" 0,", " 1,"}, SingleNUMANode: {" 0,", " 1,"}}},
		{name: "rejects more cores than a node has, with 1 device", pods: pods{{asks(1, 5)}},
			// five cores are preferred on both nodes, where one device is preferred on one
			want: map[Policy][]string{None: {" 0"}, BestEffort: {" 0"}, Restricted: {refused}, SingleNUMANode: {refused}}},
		{name: "rejects more devices than a node has", pods: pods{{asks(3, 0)}},
			want: map[Policy][]string{None: {" 0 0 1"}, BestEffort: {" 0 0 1"}, Restricted: {" 0 0 1"}, SingleNUMANode: {refused}}},
		{name: "rejects devices that others left spread over the nodes", pods: pods{{asks(3, 0)}, {asks(1, 0)}, {asks(2, 0)}},
			want: map[Policy][]string{BestEffort: {" 0 0 1", " 1", short}, SingleNUMANode: {refused, " 0", " 1 1"}}},

		{name: "admits a restartable init container with a container, each with 1 core, 1 device", pods: pods{{sidecar(asks(1, 1)), asks(1, 1)}},
			want: map[Policy][]string{BestEffort: {" 0, 0"}, Restricted: {" 0, 0"}, SingleNUMANode: {" 0, 0"}}},
		{name: "admits several restartable init containers, each with 1 core, 1 device", pods: pods{{sidecar(asks(1, 1)), sidecar(asks(1, 1)), asks(1, 1)}},
			want: map[Policy][]string{BestEffort: {" 0, 0, 1"}, Restricted: {" 0, 0, 1"}, SingleNUMANode: {" 0, 0, 1"}}},
		{name: "rejects a restartable init container with more cores than a node has", pods: pods{{sidecar(asks(1, 5)), asks(1, 1)}},
			want: map[Policy][]string{Restricted: {refused}, SingleNUMANode: {refused}}},
		{name: "rejects a pod whose second restartable init container cannot be aligned, and frees what the first had",
			pods: pods{{sidecar(asks(1, 1)), sidecar(asks(1, 5)), asks(1, 1)}, {asks(2, 4)}, {asks(2, 4)}},
			want: map[Policy][]string{Restricted: {refused, " 0 0", " 1 1"}, SingleNUMANode: {refused, " 0 0", " 1 1"}}},

		{name: "a container takes what its init container had", pods: pods{{initially(asks(2, 1)), asks(2, 1)}, {asks(2, 0)}},
			want: map[Policy][]string{BestEffort: {" 0 0, 0 0", " 1 1"}, Restricted: {" 0 0, 0 0", " 1 1"}, SingleNUMANode: {" 0 0, 0 0", " 1 1"}}},
		{name: "and less of it, though that was of both nodes", nics: []string{"0", "1"}, pods: pods{{initially(asks(2, 0)), asks(1, 0)}},
			want: map[Policy][]string{BestEffort: {" 0 1, 0"}, Restricted: {" 0 1, 0"}}},

		{name: "a pod as one: its containers share a node", scope: PerPod, pods: pods{{asks(1, 0)}, {asks(1, 0), asks(1, 0)}},
			want: map[Policy][]string{BestEffort: {" 0", " 1, 1"}, Restricted: {" 0", " 1, 1"}, SingleNUMANode: {" 0", " 1, 1"}}},
		{name: "each container for itself: a pod's containers part", pods: pods{{asks(1, 0)}, {asks(1, 0), asks(1, 0)}},
			want: map[Policy][]string{BestEffort: {" 0", " 0, 1"}, Restricted: {" 0", " 0, 1"}, SingleNUMANode: {" 0", " 0, 1"}}},
		{name: "a pod as one: rejects what fits container by container only", scope: PerPod, pods: pods{{asks(1, 3), asks(1, 2)}},
			want: map[Policy][]string{BestEffort: {" 0, 0"}, Restricted: {refused}, SingleNUMANode: {refused}}},
		{name: "a pod as one: init containers do not add up", scope: PerPod, pods: pods{{initially(asks(2, 4)), asks(1, 2), asks(1, 2)}},
			want: map[Policy][]string{BestEffort: {" 0 0, 0, 0"}, Restricted: {" 0 0, 0, 0"}, SingleNUMANode: {" 0 0, 0, 0"}}},
		{name: "a pod as one: restartable ones do", scope: PerPod, pods: pods{{sidecar(asks(2, 0)), asks(1, 0)}},
			want: map[Policy][]string{BestEffort: {" 0 0, 1"}, Restricted: {" 0 0, 1"}, SingleNUMANode: {refused}}},

		{name: "devices that know their node are taken before those that do not", nics: []string{"", "0", "", "1"}, pods: pods{{asks(1, 0)}, {asks(1, 0)}, {asks(1, 0)}},
			want: map[Policy][]string{None: {" ", " 0", " "}, BestEffort: {" 0", " 1", " "}, SingleNUMANode: {" 0", " 1", refused}}},
		{name: "devices without any topology are not aligned", nics: []string{"", ""}, pods: pods{{asks(1, 4)}, {asks(1, 4)}},
			want: map[Policy][]string{Restricted: {" ", " "}, SingleNUMANode: {" ", " "}}},
		{name: "best-effort aligns as many as it can", nics: []string{"0", "0", "0", "1"}, pods: pods{{asks(1, 3)}, {asks(3, 4)}},
			want: map[Policy][]string{BestEffort: {" 0", " 0 0 1"}, Restricted: {" 0", refused}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.nics == nil {
				tc.nics = []string{"0", "0", "1", "1"}
			}
			for policy, want := range tc.want {
				r := newRig(t, Config{Policy: policy, Scope: tc.scope, Nodes: hostOf(0, 1)}, map[string][]inventory.Device{
					"nic": near("nic", tc.nics...), "core": near("core", "0", "0", "0", "0", "1", "1", "1", "1"),
				})
				for i, pod := range tc.pods {
					if got := admitted(r, pod); got != want[i] {
						t.Errorf("%s: pod %d has%s, want%s", policy, i, got, want[i])
					}
				}
			}
		})
	}
}

// admitted are the nodes of each container's nics.
func admitted(r *rig, pod []Container) string {
	all, err := r.admit(pod)
	if target := (*AffinityError)(nil); errors.As(err, &target) {
		return refused
	} else if err != nil {
		return short
	}
	text := ""
	for i, g := range all {
		if i > 0 {
			text += ","
		}
		text += g.nodes("nic")
	}
	return text
}

// TestClosestNodesAreGivenFirst: two pods that need two nodes each get the pairs that are close; who comes when these are broken gets the rest.
func TestClosestNodesAreGivenFirst(t *testing.T) {
	host := []Node{
		{ID: 0, Distances: []int{10, 31, 12, 31}}, {ID: 1, Distances: []int{31, 10, 31, 12}},
		{ID: 2, Distances: []int{12, 31, 10, 31}}, {ID: 3, Distances: []int{31, 12, 31, 10}},
	}
	for _, policy := range []Policy{BestEffort, Restricted} {
		r := newRig(t, Config{Policy: policy, Nodes: host, Options: map[string]string{OptionClosest: "true"}},
			map[string][]inventory.Device{"nic": near("nic", "0", "0", "0", "1", "1", "1", "2", "2", "2", "3", "3", "3")})
		for i, want := range []string{" 0 0 0 2", " 1 1 1 3", " 2 2 3 3"} {
			if got := admitted(r, []Container{asks(4, 0)}); got != want {
				t.Errorf("%s: pod %d has%s, want%s", policy, i, got, want)
			}
		}
	}
}

func TestPodCounts(t *testing.T) {
	for _, tc := range []struct {
		name string
		pod  []Container
		want map[string]int
	}{
		{name: "no container", want: map[string]int{}},
		{name: "containers add up", pod: []Container{asks(1, 2), asks(2, 0), asks(0, 1)}, want: map[string]int{"nic": 3, "core": 3}},
		{name: "init containers hand down", pod: []Container{initially(asks(3, 0)), initially(asks(1, 0)), asks(1, 0), asks(1, 0)}, want: map[string]int{"nic": 3}},
		{name: "restartable ones keep", pod: []Container{sidecar(asks(1, 0)), initially(asks(3, 0)), sidecar(asks(1, 0)), asks(1, 1)}, want: map[string]int{"nic": 4, "core": 1}},
		{name: "but not before they run", pod: []Container{initially(asks(3, 0)), sidecar(asks(1, 0)), asks(1, 0)}, want: map[string]int{"nic": 3}},
		{name: "nothing is asked of what is asked 0 of", pod: []Container{asks(0, 0)}, want: map[string]int{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := PodCounts(tc.pod); !maps.Equal(got, tc.want) {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// TestAdmittedPodsAreAligned: whatever pods come, what restricted and single-numa-node admit is aligned device by device, in what the scope says; nobody gets
// a device that another has; what is refused leaves nothing taken; and none refuses nothing.
func TestAdmittedPodsAreAligned(t *testing.T) {
	const seed = 42
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 3))
	outcomes := map[Policy]map[string]int{}
	for round := range 1500 {
		host, nodes, _ := randomNodes(rnd)
		devices := map[string][]inventory.Device{}
		for i := range 1 + rnd.IntN(3) {
			resource := fmt.Sprint("r", i)
			devices[resource] = randomRequest(rnd, host, resource).Devices
		}
		for _, policy := range policies {
			for _, scope := range []Scope{PerContainer, PerPod} {
				r := newRig(t, Config{Policy: policy, Scope: scope, Nodes: nodes}, devices)
				for range 3 {
					before := fmt.Sprint(r.taken)
					pod := randomPod(rnd, devices)
					all, err := r.admit(pod)
					var no *AffinityError
					switch {
					case errors.As(err, &no) && (policy == None || policy == BestEffort):
						t.Fatalf("round %d, %s refuses %v: %v", round, policy, pod, err)
					case err != nil && fmt.Sprint(r.taken) != before:
						t.Fatalf("round %d, %s: %v left %v taken, which was %v", round, policy, err, r.taken, before)
					case err == nil:
						checkAligned(t, r, host, pod, all)
					}
					if outcomes[policy] == nil {
						outcomes[policy] = map[string]int{}
					}
					outcomes[policy][fmt.Sprintf("%T", err)]++
				}
			}
		}
	}
	t.Logf("outcomes: %v", outcomes)
	for _, policy := range []Policy{Restricted, SingleNUMANode} {
		if o := outcomes[policy]; o["<nil>"] < 100 || o["*topology.AffinityError"] < 100 {
			t.Errorf("%s: %v is too few of something to have tested it", policy, o)
		}
	}
}

func randomPod(rnd *rand.Rand, devices map[string][]inventory.Device) []Container {
	var pod []Container
	inits := rnd.IntN(3)
	for i := range inits + 1 + rnd.IntN(2) {
		c := Container{Counts: map[string]int{}, Init: i < inits, Restartable: i < inits && rnd.IntN(2) == 0}
		for resource := range devices {
			if rnd.IntN(3) > 0 {
				c.Counts[resource] = rnd.IntN(3)
			}
		}
		pod = append(pod, c)
	}
	return pod
}

// checkAligned looks at the grants of a pod, by the definition's words.
func checkAligned(t *testing.T, r *rig, host defSet, pod []Container, all []granted) {
	t.Helper()
	for i, g := range all {
		for resource, n := range pod[i].Counts {
			names := map[string]bool{}
			for _, d := range g[resource] {
				names[d.Name] = true
			}
			if len(names) != n || len(g[resource]) != n {
				t.Fatalf("container %d of %v got %v", i, pod, g)
			}
		}
	}
	if policy := r.aligner.Policy(); policy == None || policy == BestEffort {
		return
	}
	if r.aligner.Scope() == PerPod {
		checkOneSet(t, r, host, PodCounts(pod), all)
		return
	}
	for i := range all {
		checkOneSet(t, r, host, pod[i].Counts, all[i:i+1])
	}
}

// checkOneSet wants a set of nodes that all of the devices are near to, those of resources without any topology apart, and that is as small as it could be
// for each of the resources.
func checkOneSet(t *testing.T, r *rig, host defSet, counts map[string]int, grants []granted) {
	t.Helper()
	var (
		sizes   []int
		devices []inventory.Device
	)
	for resource, n := range counts {
		if n == 0 || !slices.ContainsFunc(r.devices[resource], host.touches) {
			continue
		}
		size := len(host)
		for _, s := range subsetsOf(host) {
			if len(slices.DeleteFunc(slices.Clone(r.devices[resource]), func(d inventory.Device) bool { return !s.touches(d) })) >= n {
				size = min(size, len(s))
			}
		}
		sizes = append(sizes, size)
		for _, g := range grants {
			devices = append(devices, g[resource]...)
		}
	}
	serves := func(s defSet) bool {
		return !slices.ContainsFunc(sizes, func(size int) bool { return size != len(s) }) &&
			!slices.ContainsFunc(devices, func(d inventory.Device) bool { return !s.touches(d) }) &&
			(r.aligner.Policy() != SingleNUMANode || len(s) == 1)
	}
	if len(sizes) > 0 && !slices.ContainsFunc(subsetsOf(host), serves) {
		t.Fatalf("nodes %v: %s admits %v per %s with %v, to be aligned on %v nodes", host, r.aligner.Policy(), counts, r.aligner.Scope(), grants, sizes)
	}
}
