package devices

import (
	"errors"
	"path/filepath"
	"testing"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/answer"
	"monopod.dev/monopod/internal/devices/source"
	"monopod.dev/monopod/internal/devices/topology"
	"monopod.dev/monopod/internal/state"
)

// rebooted is the manager of a machine that was started again, on which these pods live.
func rebooted(t *testing.T, db *state.DB, pods []string, sources ...source.Source) *Manager {
	t.Helper()
	m := newManager(Config{DB: db, Log: quiet(), Boot: "two"}, new(topology.Aligner), sources...)
	live := map[string]bool{}
	for _, uid := range pods {
		live[uid] = true
	}
	if err := m.Reconcile(t.Context(), live, nil); err != nil {
		t.Fatal(err)
	}
	return m
}

// knows is a plugin that refuses devices that it does not know, as plugins do.
func knows(src *pluginLike, names ...string) {
	known := map[string]bool{}
	for _, n := range names {
		known[n] = true
	}
	give := newPluginLike(gadget).prepare
	src.prepare = func(c source.Container, resource string, names []string) (answer.Answer, error) {
		for _, n := range names {
			if !known[n] {
				return answer.Answer{}, &answer.RefusedError{Resource: resource, Err: errors.New("unknown device " + n)}
			}
		}
		return give(c, resource, names)
	}
}

// TestAPluginIsNotAskedAgainForADeviceThatIsNotReady: after a reboot a device may come late, or be out of order: its pod waits for it, and does not fail.
func TestAPluginIsNotAskedAgainForADeviceThatIsNotReady(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "agent.db"))
	m := settledManager(t, db, newPluginLike(gadget, "g0", "g1"))
	req := podOf("a", asksFor("c", gadget, 1))
	admit(t, m, req)
	next := newPluginLike(gadget, "g1")
	knows(next, "g1")
	m = rebooted(t, db, []string{"a"}, next)
	notReady(t, m, req, `device "g0", which this container was granted, is not there any more`)
	next.snap = newPluginLike(gadget, "g0", "g1").snap
	next.unhealthy("g0", "on fire")
	next.faults = map[string]error{"g0": errors.New("on fire")}
	notReady(t, m, req, "on fire")
	if len(next.prepared) > 0 {
		t.Errorf("asked %q", next.prepared)
	}
	knows(next, "g0", "g1")
	next.unhealthy("g0", "")
	next.faults = nil
	admit(t, m, req)
	if got := nodesGiven(t, m, req, "c"); got != "/dev/g0" || len(next.prepared) != 1 {
		t.Errorf("given %q after %q", got, next.prepared)
	}
}

// TestADeviceThatNobodyGotIsChosenAnew: as long as a plugin has not answered, its device is no more than chosen.
func TestADeviceThatNobodyGotIsChosenAnew(t *testing.T) {
	src := newPluginLike(gadget, "g0", "g1")
	src.prepare = func(source.Container, string, []string) (answer.Answer, error) {
		return answer.Answer{}, errors.New("plugin crashed")
	}
	m := settledManager(t, open(t, filepath.Join(t.TempDir(), "agent.db")), src)
	req := podOf("a", asksFor("c", gadget, 1))
	notReady(t, m, req, "crashed")
	src.snap = newPluginLike(gadget).snap // all are gone
	notReady(t, m, req, "1 wanted, 0 free (of 0, 0 in use)")
	src.snap = newPluginLike(gadget, "g1").snap
	knows(src, "g1")
	admit(t, m, req)
	if got := nodesGiven(t, m, req, "c"); got != "/dev/g1" {
		t.Errorf("given %q", got)
	}
	// What was answered is not chosen anew.
	src.snap = newPluginLike(gadget, "g2").snap
	admit(t, m, req)
	if got := nodesGiven(t, m, req, "c"); got != "/dev/g1" {
		t.Errorf("given %q", got)
	}
}

// TestNumbersOfNodesAreOfOneBoot: a device is its definition; which number the kernel gave it in an earlier boot says nothing.
func TestNumbersOfNodesAreOfOneBoot(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "agent.db"))
	src := &benchSource{}
	src.set("modem", "phone")
	src.nodes("modem", "/dev/ttyUSB0")
	src.nodes("phone", "/dev/ttyUSB1")
	m := settledManager(t, db, src)
	a, b := request("a", "c", 1), request("b", "c", 1)
	grant(t, m, a, "modem")
	grant(t, m, b, "phone")

	src = &benchSource{}
	src.set("modem", "phone") // they have changed their numbers
	src.nodes("modem", "/dev/ttyUSB1")
	src.nodes("phone", "/dev/ttyUSB0")
	m = rebooted(t, db, []string{"a", "b"}, src)
	for _, g := range m.Grants() {
		if g.Devices[0].Health != Healthy {
			t.Errorf("pod %s has %+v", g.PodName, g.Devices)
		}
	}
	grant(t, m, a, "modem")
	grant(t, m, b, "phone")
	src.nodes("modem", "/dev/ttyUSB2") // in one boot it would be other hardware
	withheld(t, m, a, "c", `device "modem" is [/dev/ttyUSB2] now, and was [/dev/ttyUSB1]`)
}

// TestAnothersHardwareAfterAReboot: a device that comes late, with a node that somebody was given meanwhile by another name, waits for that.
func TestAnothersHardwareAfterAReboot(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "agent.db"))
	src := &benchSource{}
	src.set("modem")
	src.nodes("modem", "/dev/ttyUSB0")
	m := settledManager(t, db, src)
	a := request("a", "c", 1)
	grant(t, m, a, "modem")

	src, other := &benchSource{}, newPluginLike(gadget, "g0")
	src.set()
	other.snap.Devices[0].Nodes = []string{"/dev/ttyUSB1"}
	m = rebooted(t, db, []string{"a"}, other, src)
	b := podOf("b", asksFor("c", gadget, 1))
	admit(t, m, b)
	src.set("modem")
	src.nodes("modem", "/dev/ttyUSB1")
	notReady(t, m, a, `device "modem" is /dev/ttyUSB1 since the machine was restarted, which pod default/p-b has`)
	if err := m.Release(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	grant(t, m, a, "modem")
	notReady(t, m, b, "1 wanted, 0 free (of 1, 1 in use)")
}

// TestAGrantOutlivesThatItsResourceIsAnothers: a pod that has a device by CDI goes on with it when a plugin takes the resource over, in this boot and in
// the next.
func TestAGrantOutlivesThatItsResourceIsAnothers(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "agent.db"))
	cdi, plugin := &benchSource{}, newPluginLike(widget)
	cdi.set("w0", "w1")
	cdi.nodes("w0", "/dev/w0")
	plugin.forget()
	m := settledManager(t, db, plugin, cdi)
	req := request("a", "c", 1)
	grant(t, m, req, "w0")
	plugin.snap = newPluginLike(widget, "p0", "p1").snap
	for _, manager := range []*Manager{m, rebooted(t, db, []string{"a"}, plugin, cdi)} {
		grant(t, manager, req, "w0")
		if d := manager.GrantsOf("a")[0].Devices[0]; d.Health != Healthy || d.Source != "cdi" {
			t.Errorf("the pod has %+v", d)
		}
	}
	cdi.set("w1")
	if d := m.GrantsOf("a")[0].Devices[0]; d.Health != Unknown {
		t.Errorf("the pod has %+v", d)
	}
}

// TestAHandedDownDeviceIsWithheldOnce: an init container and the one after it have one device between them.
func TestAHandedDownDeviceIsWithheldOnce(t *testing.T) {
	cdi, plugin := &benchSource{}, newPluginLike(widget)
	cdi.set("w0", "w1")
	plugin.forget()
	m := settledManager(t, open(t, filepath.Join(t.TempDir(), "agent.db")), plugin, cdi)
	first := asks("i", 1)
	first.Role = alloc.Init
	admit(t, m, podOf("a", first, asks("c", 1)))
	plugin.snap = newPluginLike(widget, "p0", "p1").snap
	admit(t, m, request("b", "c", 1))
	notReady(t, m, request("c", "c", 1), "1 wanted, 0 free (of 2, 2 in use)")
}

// TestTheLineOutlastsAnIllness: who asks for as much as there is stands in line, also when it cannot be given to anybody now.
func TestTheLineOutlastsAnIllness(t *testing.T) {
	src := newPluginLike(gadget, "g0", "g1")
	m := settledManager(t, open(t, filepath.Join(t.TempDir(), "agent.db")), src)
	src.unhealthy("g0", "its plugin restarts")
	src.unhealthy("g1", "its plugin restarts")
	old, young := podOf("a", asksFor("c", gadget, 2)), podOf("b", asksFor("c", gadget, 1))
	notReady(t, m, old, "2 wanted, 0 free (of 2, 0 in use, 2 unfit)")
	notReady(t, m, podOf("0", asksFor("c", gadget, 3)), "more than the node has")
	src.unhealthy("g0", "")
	notReady(t, m, young, "default/p-a, which came first")
	src.unhealthy("g1", "")
	admit(t, m, old)
}
