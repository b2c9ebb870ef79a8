package devices

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/kit/failpoint"
)

func TestGrantIsIdempotentAndSurvivesTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	db := open(t, path)
	src := &benchSource{}
	src.set("w0", "w1", "w2")
	m := settledManager(t, db, src)
	grant(t, m, request("a", "c", 2), "w0", "w1")
	grant(t, m, request("a", "c", 2), "w0", "w1")
	grant(t, m, request("b", "c", 1), "w2")
	before := m.Grants()
	db.Close()

	src.set("w2", "w1", "w0", "v9") // another order, and more of them
	m = settledManager(t, open(t, path), src)
	if got := fmt.Sprint(m.Grants()); got != fmt.Sprint(before) {
		t.Errorf("grants after a restart: %s\nwant %v", got, before)
	}
	grant(t, m, request("a", "c", 2), "w0", "w1")
	grant(t, m, request("c", "c", 1), "v9")
	notReady(t, m, request("d", "c", 1), "1 wanted, 0 free (of 4, 4 in use)")
}

func TestAVanishedDeviceIsSaidAndNeverReplaced(t *testing.T) {
	m, src := newTestManager(t, "w0", "w1")
	grant(t, m, request("a", "c", 1), "w0")
	src.set("w1")
	withheld(t, m, request("a", "c", 1), "c", `device "w0", which this container was granted, is not there any more`)
	admit(t, m, request("a", "c", 1)) // it has what it asks for, and waits for that
	if g := m.Grants()[0].Devices[0]; g.Health != Unknown || g.Source != "cdi" {
		t.Errorf("listed as %+v", g)
	}
	if n := m.Resources()[widget]; n != (inventory.Quantity{Capacity: 1, Allocatable: 1}) {
		t.Errorf("resources: %+v", n)
	}
	grant(t, m, request("b", "c", 1), "w1")
	src.set("w0", "w1")
	grant(t, m, request("a", "c", 1), "w0") // it has come back: the same
	src.faults["w0"] = errors.New("/dev/w0 does not exist")
	withheld(t, m, request("a", "c", 1), "c", "a device that this container was granted cannot be used: /dev/w0 does not exist")
}

// A definition that is written anew must not put other hardware into a container under the old name.
func TestOtherHardwareUnderTheOldNameIsNotGiven(t *testing.T) {
	m, src := newTestManager(t, "w0", "w1")
	src.nodes("w0", "/dev/a")
	grant(t, m, request("a", "c", 1), "w0")
	src.nodes("w0", "/dev/b")
	withheld(t, m, request("a", "c", 1), "c", `/etc/cdi/w.json: device "w0" is [/dev/b] now, and was [/dev/a]`)
	src.nodes("w0", "/dev/a")
	grant(t, m, request("a", "c", 1), "w0")
}

func TestInitContainersHandTheirDevicesDown(t *testing.T) {
	m, _ := newTestManager(t, "w0", "w1", "w2")
	as := func(role alloc.Role, c ContainerRequest) ContainerRequest {
		c.Role = role
		return c
	}
	req := podOf("a", as(alloc.Init, asks("init1", 2)), as(alloc.Sidecar, asks("sidecar", 1)), as(alloc.Init, asks("init2", 1)), asks("main", 1))
	admit(t, m, req)
	for container, want := range map[string]string{"init1": "w0 w1", "sidecar": "w0", "init2": "w1", "main": "w1"} {
		for range 2 { // the pod may start over
			if got := given(t, m, req, container); got != want {
				t.Errorf("%s got %q, want %q", container, got, want)
			}
		}
	}
	grant(t, m, request("b", "c", 1), "w2")
	notReady(t, m, request("c", "c", 1))
}

// A crash or an error at any point leaves either no grant or the whole one, on disk as in memory, and a retry ends well.
func TestGrantFailsWhole(t *testing.T) {
	for point, kept := range map[string]bool{"devices/grant/before-persist": false, "devices/grant/persisted": true} {
		t.Run(point, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "agent.db")
			db := open(t, path)
			src := &benchSource{}
			src.set("w0")
			m := settledManager(t, db, src)
			disarm := failpoint.Arm(point, func() error { return errors.New("disk gone") })
			_, err := m.Admit(t.Context(), request("a", "c", 1))
			disarm()
			if err == nil {
				t.Fatalf("got %v", err)
			}
			if got := len(m.Grants()) == 1; got != kept {
				t.Errorf("in memory: %v, want %v", got, kept)
			}
			db.Close()
			m = settledManager(t, open(t, path), src)
			if got := len(m.Grants()) == 1; got != kept {
				t.Errorf("on disk: %v, want %v", got, kept)
			}
			grant(t, m, request("a", "c", 1), "w0")
		})
	}
}
