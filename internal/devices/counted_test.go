package devices

import (
	"path/filepath"
	"slices"
	"testing"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/topology"
)

const dongle = "example.com/dongle"

// counts is a request of a pod for dongles, of which the node's status counts four.
func counts(pod string, containers ...ContainerRequest) PodRequest {
	r := podOf(pod, containers...)
	r.Counted = map[string]int64{dongle: 4}
	return r
}

func wants(container string, role alloc.Role, resources map[string]int64) ContainerRequest {
	return ContainerRequest{Name: container, Role: role, Resources: resources}
}

// TestCounted: of what the node merely counts a pod gets the number, together with its devices, as long as there is some; over a restart of the node it has it
// still, whatever the resource has become.
func TestCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	db := open(t, path)
	src := &benchSource{faults: map[string]error{}}
	src.set("w0", "w1")
	m := settledManager(t, db, src)
	one := counts("a", wants("i", alloc.Init, map[string]int64{dongle: 3}), wants("m", alloc.Main, map[string]int64{dongle: 2, widget: 1}), wants("n", alloc.Main, map[string]int64{dongle: 1}))
	admit(t, m, one)
	for container, want := range map[string]string{"i": "", "m": "w0", "n": ""} {
		if got := given(t, m, one, container); got != want {
			t.Errorf("container %s is given %q, want %q", container, got, want)
		}
	}
	if g := m.Grants(); len(g) != 1 || g[0].Container != "m" || len(g[0].Devices) != 1 {
		t.Errorf("granted devices: %+v", g)
	}
	two := counts("b", wants("m", alloc.Main, map[string]int64{dongle: 2}))
	notReady(t, m, two, "the node's status counts 4, the pod asks for 2, and other pods have 3")
	admit(t, m, counts("c", wants("m", alloc.Main, map[string]int64{dongle: 1})))
	notCounted := two
	notCounted.Counted = nil
	notReady(t, m, notCounted, "no device of this resource is defined")
	if err := m.Release(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if err := m.Release(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}

	// The machine was restarted, the node counts nothing yet, and a plugin has the name.
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	src.mu.Lock()
	src.snap.Resources = []string{dongle, widget}
	src.snap.Devices = slices.Insert(slices.Clone(src.snap.Devices), 0, inventory.Device{Resource: dongle, Name: "d0", Origin: "a plugin"})
	src.mu.Unlock()
	m = newManager(Config{DB: open(t, path), Log: quiet(), Boot: "two"}, new(topology.Aligner), src)
	if err := m.Reconcile(t.Context(), map[string]bool{"a": true}, nil); err != nil {
		t.Fatal(err)
	}
	one.Counted = nil
	admit(t, m, one)
	for container, want := range map[string]string{"i": "", "m": "w0", "n": ""} {
		if got := given(t, m, one, container); got != want {
			t.Errorf("after the restart container %s is given %q, want %q", container, got, want)
		}
	}
	// What a source has is its devices, whatever the status counts.
	g := counts("d", wants("m", alloc.Main, map[string]int64{dongle: 1}))
	admit(t, m, g)
	if got, err := m.Grant(t.Context(), g.container("m")); err != nil || !slices.Equal(got.CDIDevices, []string{dongle + "=d0"}) {
		t.Errorf("of the plugin's it gets %v, %v", got.CDIDevices, err)
	}
	notReady(t, m, counts("e", wants("m", alloc.Main, map[string]int64{dongle: 1})), dongle)
}

// TestCountedByTheContainer: where the ledger is lost, what a container says of itself has the number too.
func TestCountedByTheContainer(t *testing.T) {
	src := &benchSource{faults: map[string]error{}}
	src.set()
	req := counts("a", wants("m", alloc.Main, map[string]int64{dongle: 3}))
	m := settledManager(t, open(t, filepath.Join(t.TempDir(), "agent.db")), src)
	admit(t, m, req)
	g, err := m.Grant(t.Context(), req.container("m"))
	if err != nil {
		t.Fatal(err)
	}
	m = newManager(Config{DB: open(t, filepath.Join(t.TempDir(), "agent.db")), Log: quiet(), Boot: "one"}, new(topology.Aligner), src)
	if err := m.Reconcile(t.Context(), map[string]bool{"a": true}, []Holding{{PodUID: "a", PodNamespace: "default", PodName: "p-a", Container: "m", Record: g.Record}}); err != nil {
		t.Fatal(err)
	}
	notReady(t, m, counts("b", wants("m", alloc.Main, map[string]int64{dongle: 2})), "other pods have 3")
	req.Counted = nil
	admit(t, m, req)
}
