package devices

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/answer"
	"monopod.dev/monopod/internal/devices/book"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/source"
	"monopod.dev/monopod/internal/devices/topology"
)

const gadget = "example.com/gadget"

// pluginLike is a source as device plugins are: its answers last, and tell the nodes that its devices do not.
type pluginLike struct{ benchSource }

func (s *pluginLike) Name() string { return "device-plugin" }
func (s *pluginLike) AnswersLast() {}

// newPluginLike has gadgets, each with the node /dev/NAME.
func newPluginLike(resource string, names ...string) *pluginLike {
	s := &pluginLike{}
	s.snap = inventory.Snapshot{Resources: []string{resource}, Places: []string{"/plugins"}}
	for _, n := range names {
		s.snap.Devices = append(s.snap.Devices, inventory.Device{Resource: resource, Name: n, Origin: "/plugins/p.sock"})
	}
	s.prepare = func(_ source.Container, _ string, names []string) (a answer.Answer, err error) {
		for _, n := range names {
			a.Nodes = append(a.Nodes, answer.Node{HostPath: "/dev/" + n, ContainerPath: "/dev/" + n, Permissions: "rw"})
		}
		return a, nil
	}
	return s
}

// unhealthy sets what is wrong with a device.
func (s *pluginLike) unhealthy(name, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snap.Devices = slices.Clone(s.snap.Devices)
	for i := range s.snap.Devices {
		if s.snap.Devices[i].Name == name {
			s.snap.Devices[i].Unhealthy = why
		}
	}
}

func (s *pluginLike) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snap = inventory.Snapshot{Places: []string{"/plugins"}}
}

// knowing is a source as CDI is: it knows the nodes behind an answer.
type knowing struct{ benchSource }

func (s *knowing) Identify(a answer.Answer) (nodes []string) {
	for _, n := range a.Nodes {
		if n.HostPath != "/dev/shared" {
			nodes = append(nodes, n.HostPath)
		}
	}
	return nodes
}

func asksFor(container, resource string, n int64) ContainerRequest {
	return ContainerRequest{Name: container, Role: alloc.Main, Resources: map[string]int64{resource: n}}
}

// nodesGiven are the host nodes with which a container is started.
func nodesGiven(t *testing.T, m *Manager, req PodRequest, container string) string {
	t.Helper()
	g, err := m.Grant(t.Context(), req.container(container))
	if err != nil {
		t.Fatalf("grant for %s of %s: %v", container, req, err)
	}
	var got []string
	for _, n := range g.Nodes {
		got = append(got, n.HostPath)
	}
	return strings.Join(got, " ")
}

// A container restarts with what its plugin has answered, whatever has become of the plugin; after a reboot the plugin is asked again.
func TestAStoredAnswerOutlivesItsPlugin(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "agent.db"))
	src := newPluginLike(gadget, "g0", "g1")
	m := settledManager(t, db, src)
	req := podOf("a", asksFor("c", gadget, 1))
	admit(t, m, req)
	for _, harm := range []func(){func() {}, func() { src.unhealthy("g0", "on fire") }, src.forget} {
		harm()
		if got := nodesGiven(t, m, req, "c"); got != "/dev/g0" {
			t.Errorf("restarted with %q", got)
		}
		admit(t, m, req)
	}
	if len(src.prepared) != 1 {
		t.Errorf("asked %q", src.prepared)
	}
	next := newPluginLike(gadget, "g0", "g1")
	m = newManager(Config{DB: db, Log: quiet(), Boot: "two"}, new(topology.Aligner), next)
	if err := m.Reconcile(t.Context(), map[string]bool{"a": true}, nil); err != nil {
		t.Fatal(err)
	}
	next.forget()
	notReady(t, m, req, `source "device-plugin", which does not have the resource now`)
	withheld(t, m, req, "c", `source "device-plugin", which does not have the resource now`)
	next.snap = newPluginLike(gadget, "g0", "g1").snap
	next.faults = map[string]error{"g0": errors.New("on fire")}
	withheld(t, m, req, "c", "on fire")
	next.faults = nil
	if got := nodesGiven(t, m, req, "c"); got != "/dev/g0" || len(next.prepared) != 1 {
		t.Errorf("given %q after %q", got, next.prepared)
	}
}

func TestUnhealthyDevicesAreCapacityAndNotAllocatable(t *testing.T) {
	src := newPluginLike(gadget, "g0", "g1", "g2")
	m := settledManager(t, open(t, filepath.Join(t.TempDir(), "agent.db")), src)
	src.unhealthy("g1", "on fire")
	src.snap.Devices[2].Unhealthy, src.snap.Devices[2].Absent = "unplugged", true
	if q := m.Resources()[gadget]; q != (inventory.Quantity{Capacity: 2, Allocatable: 1}) {
		t.Errorf("%+v", q)
	}
	if told := m.Faults(); len(told) != 1 || told[gadget] != `device "g1" of /plugins/p.sock: on fire; device "g2" of /plugins/p.sock: unplugged` {
		t.Errorf("faults %q", told)
	}
	notReady(t, m, podOf("a", asksFor("c", gadget, 2)), "on fire", "unplugged")
}

// What a plugin's answer gives is compared with what other sources have given, and the other way round.
func TestHardwareOfAPluginIsKnownByItsAnswer(t *testing.T) {
	plugin, cdi := newPluginLike(gadget, "g0", "g1"), &knowing{}
	cdi.set("w0", "w1")
	cdi.nodes("w0", "/dev/g0")
	cdi.nodes("w1", "/dev/g1")
	m := settledManager(t, open(t, filepath.Join(t.TempDir(), "agent.db")), plugin, cdi)
	gadgets := podOf("g", asksFor("c", gadget, 1))
	admit(t, m, gadgets) // g0
	admit(t, m, request("w", "c", 1))
	if got := given(t, m, request("w", "c", 1), "c"); got != "w1" {
		t.Errorf("given %q: the plugin's g0 is w0", got)
	}
	late := podOf("h", asksFor("c", gadget, 1))
	notReady(t, m, late, "1 wanted, 0 free", `device "g1" is /dev/g1, which pod default/p-w has by another resource`)
	asked := len(plugin.prepared)
	notReady(t, m, late, "1 wanted, 0 free", `device "g1" is /dev/g1, which pod default/p-w has by another resource`)
	if len(plugin.prepared) != asked || len(m.GrantsOf("h")) != 0 {
		t.Errorf("asked %q, and it holds %+v", plugin.prepared[asked:], m.GrantsOf("h"))
	}
	if err := m.Release(t.Context(), "w"); err != nil {
		t.Fatal(err)
	}
	admit(t, m, late)
	notReady(t, m, request("x", "c", 1), "0 free")
	// Of one plugin two ids may be one node, and what is nobody's own excludes nobody.
	plugin.prepare = func(source.Container, string, []string) (answer.Answer, error) {
		return answer.Answer{Nodes: []answer.Node{{HostPath: "/dev/shared", ContainerPath: "/dev/x", Permissions: "rw"}}}, nil
	}
	if err := errors.Join(m.Release(t.Context(), "g"), m.Release(t.Context(), "h")); err != nil {
		t.Fatal(err)
	}
	admit(t, m, gadgets)
	admit(t, m, late)
}

// A pod is not kept waiting for hardware that another one has while there is other: those of a plugin's devices are tried that are free, each once.
func TestAnotherDeviceIsTriedWhenThePluginGivesWhatSomebodyHas(t *testing.T) {
	plugin, cdi := newPluginLike(gadget, "g0", "g1", "g2", "g3"), &knowing{}
	cdi.set("w0", "w1")
	cdi.nodes("w0", "/dev/g0")
	cdi.nodes("w1", "/dev/g1")
	db := open(t, filepath.Join(t.TempDir(), "agent.db"))
	m := settledManager(t, db, plugin, cdi)
	admit(t, m, request("w", "c", 2))
	first := podOf("g", asksFor("c", gadget, 1))
	admit(t, m, first)
	if got := nodesGiven(t, m, first, "c"); got != "/dev/g2" || len(plugin.prepared) != 3 {
		t.Errorf("given %s, asked %q", got, plugin.prepared)
	}
	second := podOf("h", asksFor("c", gadget, 1))
	admit(t, m, second)
	if got := nodesGiven(t, m, second, "c"); got != "/dev/g3" || len(plugin.prepared) != 4 {
		t.Errorf("given %s, asked %q", got, plugin.prepared)
	}
	// Nothing is left of what was tried, on the disk either.
	again := settledManager(t, db, plugin, cdi)
	if got, want := chosen(again), []string{"c g2", "c g3", "c w0", "c w1"}; !slices.Equal(got, want) {
		t.Errorf("after a restart %q, want %q", got, want)
	}
	// Two at once: whose hardware it is of which is not known, so they are waited for.
	notReady(t, m, podOf("i", asksFor("c", gadget, 2)), "2 wanted, 0 free")
	if err := m.Release(t.Context(), "w"); err != nil {
		t.Fatal(err)
	}
	admit(t, m, podOf("i", asksFor("c", gadget, 2)))
}

// A plugin that registers while CDI grants of its resource live gets its capacity as they end.
func TestAPluginGetsItsCapacityAsTheGrantsOfCDIEnd(t *testing.T) {
	cdi := &benchSource{}
	cdi.set("w0", "w1")
	plugin := newPluginLike(widget)
	plugin.forget()
	m := settledManager(t, open(t, filepath.Join(t.TempDir(), "agent.db")), plugin, cdi)
	grant(t, m, request("a", "c", 1), "w0")
	plugin.snap = newPluginLike(widget, "w0", "w1").snap
	b, c := request("b", "c", 1), request("c", "c", 1)
	admit(t, m, b) // any but one
	notReady(t, m, c, "1 wanted, 0 free (of 2, 2 in use)")
	if err := m.Release(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	admit(t, m, c)
}

// aligned is a manager with four gadgets on two NUMA nodes, and two widgets.
func aligned(t *testing.T, policy topology.Policy, scope topology.Scope) (*Manager, *pluginLike) {
	t.Helper()
	gadgets, widgets := newPluginLike(gadget, "g0", "g1", "g2", "g3"), &knowing{}
	for i := range gadgets.snap.Devices {
		gadgets.snap.Devices[i].NUMA = []int{i % 2}
	}
	widgets.set("w0", "w1")
	widgets.snap.Devices[0].NUMA, widgets.snap.Devices[1].NUMA = []int{1}, []int{1}
	aligner, err := topology.New(topology.Config{Policy: policy, Scope: scope, Nodes: []topology.Node{{ID: 0}, {ID: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	return alignedManager(t, open(t, filepath.Join(t.TempDir(), "agent.db")), aligner, gadgets, widgets), gadgets
}

// chosen lists what the containers of a pod have, as "container resource names".
func chosen(m *Manager) (all []string) {
	for _, g := range m.Grants() {
		for _, d := range g.Devices {
			all = append(all, g.Container+" "+d.Name)
		}
	}
	return all
}

func TestDevicesAreAligned(t *testing.T) {
	both := func(name string, gadgets, widgets int64) ContainerRequest {
		return ContainerRequest{Name: name, Role: alloc.Main, Resources: map[string]int64{gadget: gadgets, widget: widgets}}
	}
	for name, c := range map[string]struct {
		policy topology.Policy
		scope  topology.Scope
		pod    []ContainerRequest
		want   []string
	}{
		"none":             {topology.None, topology.PerContainer, []ContainerRequest{both("c", 2, 1)}, []string{"c g0", "c g1", "c w0"}},
		"best effort":      {topology.BestEffort, topology.PerContainer, []ContainerRequest{both("c", 2, 1)}, []string{"c g1", "c g3", "c w0"}},
		"single node":      {topology.SingleNUMANode, topology.PerContainer, []ContainerRequest{both("c", 1, 1), asksFor("d", gadget, 1)}, []string{"c g1", "c w0", "d g0"}},
		"the pod's":        {topology.SingleNUMANode, topology.PerPod, []ContainerRequest{asksFor("c", gadget, 1), both("d", 1, 1)}, []string{"c g1", "d g3", "d w0"}},
		"handed down":      {topology.Restricted, topology.PerContainer, []ContainerRequest{{Name: "i", Role: alloc.Init, Resources: map[string]int64{gadget: 1}}, asksFor("m", gadget, 2)}, []string{"i g0", "m g0", "m g2"}},
		"three over nodes": {topology.BestEffort, topology.PerContainer, []ContainerRequest{both("c", 3, 2)}, []string{"c g1", "c g3", "c g0", "c w0", "c w1"}},
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := aligned(t, c.policy, c.scope)
			admit(t, m, podOf("p", c.pod...))
			if got := chosen(m); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// A pod that cannot be aligned fails; one that only has to wait for devices waits, and one that is behind others too.
func TestAlignmentIsRefused(t *testing.T) {
	m, src := aligned(t, topology.SingleNUMANode, topology.PerContainer)
	v, err := m.Admit(t.Context(), podOf("p", asksFor("c", gadget, 3)))
	if err != nil || v.Phase != Failed || v.Reason != "TopologyAffinityError" || !strings.Contains(v.Message, "Resources cannot be allocated with Topology locality: ") ||
		!strings.Contains(v.Message, "3 "+gadget) {
		t.Fatalf("%+v, %v", v, err)
	}
	if g := m.Grants(); len(g) != 0 || m.clerk.book.PhaseOf("p") != book.Nothing || len(m.clerk.book.Waiting()) != 0 {
		t.Errorf("left: %+v", g)
	}
	notReady(t, m, podOf("q", asksFor("c", gadget, 5)), "5 wanted, 4 free")
	src.unhealthy("g0", "on fire")
	src.unhealthy("g1", "on fire")
	if v, err = m.Admit(t.Context(), podOf("r", asksFor("c", gadget, 2))); err != nil || v.Phase != Failed {
		t.Errorf("%+v, %v", v, err)
	}
}

// picky is a plugin with a preference: the last of what it may choose.
type picky struct {
	*pluginLike
	asked []string
}

func (s *picky) Prefer(_ context.Context, _ string, available, must []string, n int) []string {
	s.asked = append(s.asked, fmt.Sprint(available, must, n))
	rest := slices.DeleteFunc(slices.Clone(available), func(name string) bool { return slices.Contains(must, name) })
	return append(slices.Clone(must), rest[len(rest)-(n-len(must)):]...)
}

// A plugin chooses among what is aligned, and has what is handed down and what is aligned among that which it must take.
func TestAPreferenceIsAskedForWithinTheAlignment(t *testing.T) {
	m, src := aligned(t, topology.BestEffort, topology.PerContainer)
	p := &picky{pluginLike: src}
	m.worlds.sources[0] = p
	admit(t, m, podOf("p", ContainerRequest{Name: "c", Role: alloc.Main, Resources: map[string]int64{gadget: 1, widget: 1}}))
	if got := chosen(m); !slices.Equal(got, []string{"c g3", "c w0"}) || !slices.Equal(p.asked, []string{"[g1 g3] [] 1"}) {
		t.Errorf("chosen %q after %q", got, p.asked)
	}
}
