package devices

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/answer"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/source"
	"monopod.dev/monopod/internal/kit/failpoint"
)

func TestAShortResourceHoldsThePodUntilADeviceComesFree(t *testing.T) {
	m, src := newTestManager(t, "w0")
	grant(t, m, request("a", "c", 1), "w0")
	notReady(t, m, request("b", "c", 1), "0 free")
	unknown := request("u", "c", 0)
	unknown.Containers[0].Resources["other.com/gpu"] = 1
	src.snap.Problems = []Problem{{Paths: []string{"/etc/cdi/bad.json"}, Message: "is not JSON"}, {Resource: widget, Paths: []string{"/x"}, Message: "not this"}}
	v, err := m.Admit(t.Context(), unknown)
	if want := "other.com/gpu is not ready: no device of this resource is defined (looked in /etc/cdi); /etc/cdi/bad.json: is not JSON"; err != nil || v.Message != want {
		t.Errorf("got  %+v %v\nwant %s", v, err, want)
	}

	ticked := watch(t, m)
	if ticked() {
		t.Error("a tick too early")
	}
	if err := m.Release(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if !ticked() {
		t.Error("no tick when a device came free")
	}
	grant(t, m, request("b", "c", 1), "w0")
	ticked()
	for range 2 { // idempotent, and nothing to tell
		if err := m.Release(t.Context(), "a"); err != nil || ticked() {
			t.Errorf("release of nothing: %v", err)
		}
	}
}

func TestAnUnfitDeviceIsPassedOver(t *testing.T) {
	m, src := newTestManager(t, "w0", "w1", "w2")
	src.faults["w0"] = errors.New("/dev/w0 has device number 1:2, the spec says 3:4")
	grant(t, m, request("a", "c", 1), "w1")
	notReady(t, m, request("b", "c", 2), "2 wanted, 1 free (of 3, 1 in use, 1 unfit)", "/dev/w0 has device number 1:2")
	if p := m.Problems(); len(p) != 1 || p[0].Resource != widget || !strings.Contains(p[0].String(), "/etc/cdi/w.json: /dev/w0 has") {
		t.Errorf("problems: %v", p)
	}
	if d := m.Devices(); len(d) != 3 || d[0].Fault == "" || d[1].Fault != "" {
		t.Errorf("devices: %+v", d)
	}
	delete(src.faults, "w0")
	grant(t, m, request("b", "c", 2), "w0", "w2") // looked at again, without a tick
	if p := m.Problems(); len(p) != 0 {
		t.Errorf("problems: %v", p)
	}
}

func TestConcurrentGrantsNeverShareADevice(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	var names []string
	for i := range 16 {
		names = append(names, fmt.Sprintf("w%d", i))
	}
	m, _ := newTestManager(t, names...)
	var wg sync.WaitGroup
	for i := range 8 {
		for range 2 { // a retry
			wg.Go(func() {
				if v, err := m.Admit(t.Context(), podOf(fmt.Sprint(i), asks("c", 1), asks("d", 1))); err != nil || v.Phase != Admitted {
					t.Error(v, err)
				}
			})
		}
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, g := range m.Grants() {
		for _, d := range g.Devices {
			seen[d.Name] = true
		}
	}
	if len(seen) != 16 {
		t.Errorf("%d different devices granted, want 16: %v", len(seen), slices.Sorted(maps.Keys(seen)))
	}
}

// While one call's device is being looked at, which may take long, everybody else goes on; a call for the same pod waits,
// as long as its context lets it.
func TestASlowCheckHoldsUpOnlyItsOwnPod(t *testing.T) {
	m, src := newTestManager(t, "w0", "w1")
	checks, block := make(chan string, 10), make(chan struct{})
	src.block, src.checks = block, checks
	first := make(chan error, 1)
	go func() {
		_, err := m.Admit(t.Context(), request("a", "c", 1))
		first <- err
	}()
	<-checks

	src.mu.Lock()
	src.block = nil
	src.mu.Unlock()
	grant(t, m, request("b", "c", 1), "w1") // w0 is spoken for
	if n := m.Resources()[widget]; n != (inventory.Quantity{Capacity: 2, Allocatable: 2}) {
		t.Errorf("resources: %+v", n)
	}
	if g := m.Grants(); len(g) != 1 {
		t.Errorf("published before it is durable: %+v", g)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := m.Release(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("release during a grant: %v", err)
	}
	notReady(t, m, request("c", "c", 1))
	src.faults["w0"] = errors.New("broken after all")
	close(block)
	if err := <-first; err != nil { // the fault came after its check
		t.Error(err)
	}
}

func TestOneTurnedAwayIsToldWhenAReservationEnds(t *testing.T) {
	m, src := newTestManager(t, "w0")
	checks, block := make(chan string, 10), make(chan struct{})
	src.block, src.checks = block, checks
	defer failpoint.Arm("devices/grant/before-persist", func() error { return errors.New("disk gone") })()
	first := make(chan error, 1)
	go func() {
		_, err := m.Admit(t.Context(), request("a", "c", 1))
		first <- err
	}()
	<-checks
	notReady(t, m, request("b", "c", 1))
	ticked := watch(t, m)
	close(block)
	if err := <-first; err == nil {
		t.Error("no error")
	}
	if !ticked() {
		t.Error("no tick")
	}
}

// looking is an Admit that waits in its first check of a device, until it is let go on.
func looking(t *testing.T, m *Manager, src *benchSource, req PodRequest) (goOn func() (Verdict, error)) {
	t.Helper()
	checks, block := make(chan string, 10), make(chan struct{})
	src.mu.Lock()
	src.block, src.checks = block, checks
	src.mu.Unlock()
	var v Verdict
	done := make(chan error, 1)
	go func() {
		var err error
		v, err = m.Admit(t.Context(), req)
		done <- err
	}()
	<-checks
	return func() (Verdict, error) {
		close(block)
		err := <-done
		return v, err
	}
}

// A pod that chose, and then has to wait itself, gives back what it had chosen: an older one that was turned away for it is told.
func TestOneTurnedAwayIsToldWhenAChoiceIsGivenUp(t *testing.T) {
	m, src := newTestManager(t, "w0")
	src.snap.Resources = append([]string{gadget}, src.snap.Resources...)
	src.snap.Devices = append([]inventory.Device{{Resource: gadget, Name: "g0"}}, src.snap.Devices...)
	src.faults["g0"] = errors.New("/dev/g0 does not exist")
	young := podOf("b", asks("c", 1))
	young.Containers[0].Resources[gadget] = 1
	goOn := looking(t, m, src, young)
	old := request("a", "c", 1)
	notReady(t, m, old, "1 wanted, 0 free (of 1, 1 in use)")
	ticked := watch(t, m)
	if v, err := goOn(); err != nil || v.Phase != Held {
		t.Fatalf("%+v, %v", v, err)
	}
	if !ticked() {
		t.Error("no tick")
	}
	grant(t, m, old, "w0")
}

// The same of what the node merely counts.
func TestOneTurnedAwayIsToldWhenANumberIsGivenBack(t *testing.T) {
	m, src := newTestManager(t, "w0")
	defer failpoint.Arm("devices/grant/before-persist", func() error { return errors.New("disk gone") })()
	goOn := looking(t, m, src, counts("a", wants("m", alloc.Main, map[string]int64{dongle: 3, widget: 1})))
	notReady(t, m, counts("b", wants("m", alloc.Main, map[string]int64{dongle: 2})), "other pods have 3")
	ticked := watch(t, m)
	if _, err := goOn(); err == nil {
		t.Error("no error")
	}
	if !ticked() {
		t.Error("no tick")
	}
}

// Who is told that another pod has a device is told which pod, also before that is on record.
func TestAPodIsNamedBeforeItsDevicesAreOnRecord(t *testing.T) {
	plugin, cdi := newPluginLike(gadget, "g0"), &knowing{}
	cdi.set("w0")
	cdi.nodes("w0", "/dev/g0")
	m := settledManager(t, open(t, filepath.Join(t.TempDir(), "agent.db")), plugin, cdi)
	goOn := looking(t, m, &cdi.benchSource, request("a", "c", 1))
	notReady(t, m, podOf("b", asksFor("c", gadget, 1)), `device "g0" is /dev/g0, which pod default/p-a has by another resource`)
	if v, err := goOn(); err != nil || v.Phase != Admitted {
		t.Errorf("%+v, %v", v, err)
	}
}

// The same of what was on record, and is taken back because it cannot be had any more together with the rest.
func TestOneTurnedAwayIsToldWhenAContainerLosesWhatItNeverGot(t *testing.T) {
	plugin, cdi := newPluginLike(gadget, "g0"), &benchSource{}
	cdi.set("w0", "w1")
	plugin.prepare = func(source.Container, string, []string) (answer.Answer, error) {
		return answer.Answer{}, errors.New("plugin crashed")
	}
	m := settledManager(t, open(t, filepath.Join(t.TempDir(), "agent.db")), plugin, cdi)
	young := podOf("b", asks("c", 1), asks("d", 1))
	young.Containers[1].Resources[gadget] = 1
	notReady(t, m, young, "crashed")
	old := request("a", "c", 1)
	notReady(t, m, old, "1 wanted, 0 free (of 2, 2 in use)")
	plugin.snap = newPluginLike(gadget).snap
	ticked := watch(t, m)
	notReady(t, m, young, gadget)
	if !ticked() {
		t.Error("no tick")
	}
	grant(t, m, old, "w1")
}
