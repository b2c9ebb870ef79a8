package devices

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/inventory"
)

func (s *benchSource) change(name string, f func(*inventory.Device)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snap.Devices = slices.Clone(s.snap.Devices)
	for i := range s.snap.Devices {
		if s.snap.Devices[i].Name == name {
			f(&s.snap.Devices[i])
		}
	}
}

// What is told of a granted device follows the world, and never names hardware that the container does not have.
func TestGrantsTellHowDevicesAre(t *testing.T) {
	src := &benchSource{}
	src.set("0", "1")
	src.change("0", func(d *inventory.Device) {
		d.Nodes, d.Aliases, d.NUMA = []string{"/dev/w0"}, []string{"uuid-0"}, []int{0, 1}
	})
	m := settledManager(t, open(t, t.TempDir()+"/db"), src)
	req := PodRequest{UID: "u", Namespace: "ns", Name: "p", Containers: []ContainerRequest{
		{Name: "b", Role: alloc.Main, Resources: map[string]int64{widget: 1}},
		{Name: "a", Role: alloc.Sidecar, Resources: map[string]int64{widget: 1}},
	}}
	if v, err := m.Admit(t.Context(), req); err != nil || v.Phase != Admitted {
		t.Fatal(v, err)
	}
	one := func() GrantedDevice {
		t.Helper()
		g := m.GrantsOf("u")
		if !reflect.DeepEqual(g, m.Grants()) || len(g) != 2 || g[0].Container != "a" || g[0].Role != alloc.Sidecar || len(g[1].Devices) != 1 {
			t.Fatalf("grants %+v", g)
		}
		return g[1].Devices[0]
	}
	want := GrantedDevice{Resource: widget, Name: "0", Aliases: []string{"uuid-0"}, Nodes: []string{"/dev/w0"}, Origin: "/etc/cdi/w.json", Source: "cdi", Health: Healthy, NUMA: []int{0, 1}}
	if d := one(); !reflect.DeepEqual(d, want) {
		t.Errorf("%+v", d)
	}
	src.change("0", func(d *inventory.Device) { d.Unhealthy = "/dev/w0 is not there" })
	want.Health, want.Why = Unhealthy, "/dev/w0 is not there"
	if d := one(); !reflect.DeepEqual(d, want) {
		t.Errorf("%+v", d)
	}
	// Its first name has become an alias: it is the same device, and the container goes on having it by its name.
	src.change("0", func(d *inventory.Device) { d.Unhealthy, d.Name, d.Aliases = "", "00", []string{"0", "uuid-0"} })
	if d := one(); d.Health != Healthy || d.Name != "0" || !slices.Equal(d.Aliases, []string{"00", "uuid-0"}) {
		t.Errorf("%+v", d)
	}
	src.change("00", func(d *inventory.Device) { d.Nodes = []string{"/dev/w7"} })
	if d := one(); d.Health != Unknown || d.Aliases != nil || d.NUMA != nil || !strings.Contains(d.Why, "other hardware") {
		t.Errorf("%+v", d)
	}
	src.set("1")
	if d := one(); d.Health != Unknown || d.Awaited || d.Why != "the device is not there any more" {
		t.Errorf("%+v", d)
	}
	if g := m.GrantsOf("other"); g != nil {
		t.Errorf("grants of nobody: %+v", g)
	}
}

// What the devices' faults tell is not told once more as a problem of their source, which says the same.
func TestAFaultIsToldOnce(t *testing.T) {
	m, src := newTestManager(t, "w0", "w1")
	for i := range src.snap.Devices {
		src.snap.Devices[i].Unhealthy = "the plugin of " + widget + " is gone"
	}
	src.snap.Problems = []Problem{{Resource: widget, Paths: []string{"/etc/cdi/w.json"}, Message: "the plugin of " + widget + " is gone"}, {Paths: []string{"/etc/cdi/bad.json"}, Message: "is not JSON"}}
	notReady(t, m, request("a", "c", 1), `devices "w0", "w1" of /etc/cdi/w.json: the plugin of `+widget+` is gone; /etc/cdi/bad.json: is not JSON`)
	if v, err := m.Admit(t.Context(), request("a", "c", 1)); err != nil || strings.Count(v.Message, "w.json") != 1 {
		t.Errorf("%+v, %v", v, err)
	}
}
