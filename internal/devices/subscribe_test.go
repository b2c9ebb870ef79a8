package devices

import (
	"errors"
	"testing"
)

func ticked(ticks <-chan struct{}) bool {
	select {
	case <-ticks:
		return true
	default:
		return false
	}
}

// A grant wakes those who look on, and not those who wait for devices: it gives nobody any.
func TestWatchersSeeGrants(t *testing.T) {
	m, src := newTestManager(t, "w0", "w1")
	waits, stop := m.Subscribe()
	defer stop()
	looks, stopLooking := m.Watch()
	defer stopLooking()
	admit(t, m, request("a", "main", 1))
	if ticked(waits) || !ticked(looks) {
		t.Error("a grant is for those who look on, and for nobody else")
	}
	src.faults["w1"] = errors.New("broken")
	if v, err := m.Admit(t.Context(), request("b", "main", 1)); err != nil || v.Phase == Admitted {
		t.Fatalf("%+v, %v", v, err)
	}
	if !ticked(looks) {
		t.Error("a device that fails a check is another one for those who look on")
	}
	if err := m.Release(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if !ticked(waits) || !ticked(looks) {
		t.Error("what is given back is for all")
	}
	stopLooking()
	if err := m.Release(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if ticked(looks) {
		t.Error("it ticks after its end")
	}
}
