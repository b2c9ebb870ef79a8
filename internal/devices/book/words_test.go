package book

import (
	"fmt"
	"testing"

	"monopod.dev/monopod/internal/devices/inventory"
)

const gadget = "example.com/gadget"

// A resource with thousands of devices that are gone fills no pod's status.
func TestFaultsAreFew(t *testing.T) {
	var devices []inventory.Device
	for i := range 2000 {
		devices = append(devices, inventory.Device{Resource: gadget, Name: fmt.Sprint("g", i), Origin: "/p.sock", Unhealthy: "gone"})
	}
	if got, want := Faults(devices, nil), `; devices "g0", "g1", "g2", and 1997 more of /p.sock: gone`; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	devices[0].Unhealthy = "on fire"
	if got, want := Faults(devices[:2], map[Key]string{KeyOf(devices[1]): "g1 is broken"}), `; g1 is broken; device "g0" of /p.sock: on fire`; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
