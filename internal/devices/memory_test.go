package devices

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"monopod.dev/monopod/examples/deviceplugin/emulator"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/state"
)

// widgetsByCDI writes a spec that has one device of the gadgets' kind.
func (s *scenario) widgetsByCDI() {
	s.Helper()
	if err := os.MkdirAll(filepath.Join(s.dir, "cdi"), 0o755); err != nil {
		s.Fatal(err)
	}
	spec := `{"cdiVersion": "0.6.0", "kind": "` + gadget + `", "devices": [{"name": "by-cdi", "containerEdits": {"env": ["BY=CDI"]}}]}`
	if err := os.WriteFile(filepath.Join(s.dir, "cdi", "gadget.json"), []byte(spec), 0o644); err != nil {
		s.Fatal(err)
	}
}

// TestASpecDoesNotStandInForAPluginAfterARestart: which resources are plugins' is remembered; it is forgotten when no plugin comes.
func TestASpecDoesNotStandInForAPluginAfterARestart(t *testing.T) {
	s := newScenario(t)
	s.widgetsByCDI()
	l := s.start("one")
	l.awaitFigures(1, 1) // the spec's
	_, stop := s.plug(emulator.Config{Devices: emulator.Devices(3, 0)})
	l.awaitFigures(3, 3)
	req := podOf("a", asksFor("c", gadget, 1))
	admit(t, l.Manager, req)
	stop()
	l.awaitFigures(3, 0)
	l.end()

	l = s.start("one", "a")
	notReady(t, l.Manager, podOf("b", asksFor("c", gadget, 1)), "the plugin of example.com/gadget has not told its devices again since the node was started at 20")
	if q, ok := l.Resources()[gadget]; !ok || q != (inventory.Quantity{}) {
		t.Errorf("the node has %+v (%v)", q, ok)
	}
	if d := l.GrantsOf("a")[0].Devices[0]; !d.Awaited || d.Health != Unknown || d.Name != "dev-0" {
		t.Errorf("the pod has %+v", d)
	}
	_, stop = s.plug(emulator.Config{Devices: emulator.Devices(3, 0)})
	l.awaitFigures(3, 3)
	if d := l.GrantsOf("a")[0].Devices[0]; d.Awaited || d.Health != Healthy {
		t.Errorf("the pod has %+v", d)
	}
	stop()
	l.end()

	// A plugin that is gone for good leaves its resource to the spec, and is not awaited by the next start.
	s.grace = 100 * time.Millisecond
	l = s.start("one", "a")
	l.await("the spec is the resource again", func() bool { return l.Resources()[gadget] == inventory.Quantity{Capacity: 1, Allocatable: 1} })
	if d := l.GrantsOf("a")[0].Devices[0]; d.Awaited || d.Health != Unknown {
		t.Errorf("the pod has %+v", d)
	}
	l.end()
	s.grace = time.Hour
	l = s.start("one", "a")
	if q := l.Resources()[gadget]; q != (inventory.Quantity{Capacity: 1, Allocatable: 1}) {
		t.Errorf("the node has %+v", q)
	}
}

// TestADamagedMemoryOfPluginsStopsNothing: what cannot be read is as if nothing had been remembered.
func TestADamagedMemoryOfPluginsStopsNothing(t *testing.T) {
	s := newScenario(t)
	s.widgetsByCDI()
	db := open(t, filepath.Join(s.dir, "agent.db"))
	if err := errors.Join(state.NewTable[string](db, pluginTable).Put(pluginKey, "damaged"), db.Close()); err != nil {
		t.Fatal(err)
	}
	l := s.start("one")
	l.awaitFigures(1, 1)
	s.plug(emulator.Config{Devices: emulator.Devices(3, 0)})
	l.awaitFigures(3, 3)
	l.end()
	if l = s.start("one"); l.Resources()[gadget] != (inventory.Quantity{}) {
		t.Errorf("the node has %+v", l.Resources())
	}
}
