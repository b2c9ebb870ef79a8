package devices

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"go.uber.org/goleak"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/cdi"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/source"
	"monopod.dev/monopod/internal/failpoint"
	"monopod.dev/monopod/internal/state"
)

const widget = "example.com/widget"

// benchSource is a source whose devices the test lays out.
type benchSource struct {
	name   string // empty: cdi
	mu     sync.Mutex
	snap   inventory.Snapshot
	faults map[string]error // by name
	block  chan struct{}    // when not nil, Check waits for it to be closed
	checks chan<- string    // when not nil, Check sends the name first
	// prepare answers Prepare; nil: the names, as CDI devices.
	prepare  func(c source.Container, resource string, names []string) (source.Answer, error)
	prepared []string // the calls of Prepare
}

func (s *benchSource) Name() string { return cmp.Or(s.name, "cdi") }

func (s *benchSource) Prepare(_ context.Context, c source.Container, resource string, names []string) (a source.Answer, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prepared = append(s.prepared, fmt.Sprint(c.Name, " ", names))
	if s.prepare != nil {
		return s.prepare(c, resource, names)
	}
	for _, n := range names {
		a.CDIDevices = append(a.CDIDevices, inventory.CDIName(resource, n))
	}
	return a, nil
}

func (s *benchSource) set(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snap = inventory.Snapshot{Resources: []string{widget}, Places: []string{"/etc/cdi"}}
	for _, n := range names {
		s.snap.Devices = append(s.snap.Devices, inventory.Device{Resource: widget, Name: n, Origin: "/etc/cdi/w.json"})
	}
}

// nodes says what a device is.
func (s *benchSource) nodes(name string, nodes ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snap.Devices = slices.Clone(s.snap.Devices)
	for i := range s.snap.Devices {
		if s.snap.Devices[i].Name == name {
			s.snap.Devices[i].Nodes = nodes
		}
	}
}

func (s *benchSource) Snapshot() *inventory.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := s.snap
	return &snap
}

func (s *benchSource) Run(ctx context.Context, changed func()) error {
	changed()
	<-ctx.Done()
	return nil
}

func (s *benchSource) Check(_, name string, _ bool) error {
	s.mu.Lock()
	block, checks, err := s.block, s.checks, s.faults[name]
	s.mu.Unlock()
	if checks != nil {
		checks <- name
	}
	if block != nil {
		<-block
	}
	return err
}

func open(t *testing.T, path string) *state.DB {
	t.Helper()
	db, _, err := state.Open(state.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// settledManager is one that has been told what runs: nothing.
func settledManager(t *testing.T, db *state.DB, sources ...source.Source) *Manager {
	t.Helper()
	m := newManager(Config{DB: db, Log: quiet(), Boot: "one"}, sources...)
	m.settled = true
	return m
}

func newTestManager(t *testing.T, names ...string) (*Manager, *benchSource) {
	t.Helper()
	src := &benchSource{faults: map[string]error{}}
	src.set(names...)
	return settledManager(t, open(t, filepath.Join(t.TempDir(), "agent.db")), src), src
}

// created is when the pods of the tests were, by UID: in the order of the alphabet.
func created(pod string) time.Time { return time.Unix(int64(pod[0]), 0) }

func request(pod, container string, n int64) PodRequest { return podOf(pod, asks(container, n)) }

func podOf(pod string, containers ...ContainerRequest) PodRequest {
	return PodRequest{UID: pod, Namespace: "default", Name: "p-" + pod, Created: created(pod), Containers: containers}
}

func asks(container string, n int64) ContainerRequest {
	return ContainerRequest{Name: container, Role: alloc.Main, Resources: map[string]int64{widget: n}}
}

func (r PodRequest) container(name string) source.Container {
	return source.Container{PodUID: r.UID, PodNamespace: r.Namespace, PodName: r.Name, Name: name}
}

func admit(t *testing.T, m *Manager, req PodRequest) {
	t.Helper()
	if v, err := m.Admit(t.Context(), req); err != nil || v != (Verdict{Phase: Admitted}) {
		t.Fatalf("%s: %+v, %v", req, v, err)
	}
}

// given returns the names of the devices with which a container is started.
func given(t *testing.T, m *Manager, req PodRequest, container string) string {
	t.Helper()
	g, err := m.Grant(t.Context(), req.container(container))
	if err != nil {
		t.Fatalf("grant for %s of %s: %v", container, req, err)
	}
	var got []string
	for _, d := range g.CDIDevices {
		got = append(got, strings.TrimPrefix(d, widget+"="))
	}
	return strings.Join(got, " ")
}

// grant admits a pod, and expects devices for its first container; names are given without the resource.
func grant(t *testing.T, m *Manager, req PodRequest, want ...string) {
	t.Helper()
	admit(t, m, req)
	if got := given(t, m, req, req.Containers[0].Name); got != strings.Join(want, " ") {
		t.Fatalf("%s got %q, want %q", req, got, want)
	}
}

// notReady expects to be told to wait, in words that have all the parts in them.
func notReady(t *testing.T, m *Manager, req PodRequest, parts ...string) {
	t.Helper()
	v, err := m.Admit(t.Context(), req)
	if err != nil || v.Phase != Held || v.Reason != "DevicesNotReady" {
		t.Fatalf("%s: %+v, %v; want it to be held", req, v, err)
	}
	for _, p := range append(parts, "is not ready: ") {
		if !strings.Contains(v.Message, p) {
			t.Errorf("message %q does not say %q", v.Message, p)
		}
	}
}

// withheld expects that a container of an admitted pod cannot be started now.
func withheld(t *testing.T, m *Manager, req PodRequest, container string, parts ...string) {
	t.Helper()
	g, err := m.Grant(t.Context(), req.container(container))
	var nr *NotReadyError
	if !errors.As(err, &nr) || !errdefs.IsUnavailable(err) || nr.Reason() != "DevicesNotReady" {
		t.Fatalf("%s got %q, %v; want DevicesNotReady", req, g.CDIDevices, err)
	}
	for _, p := range append(parts, nr.Resource) {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}

// watch returns a function that says whether there was a tick since it was called last.
func watch(t *testing.T, m *Manager) (ticked func() bool) {
	ticks, stop := m.Subscribe()
	t.Cleanup(stop)
	return func() bool {
		select {
		case <-ticks:
			return true
		default:
			return false
		}
	}
}

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

func TestAdmitRefusesWhatMakesNoSense(t *testing.T) {
	m, _ := newTestManager(t, "w0", "w1")
	grant(t, m, request("a", "c", 1), "w0")
	cpu := asks("c", 0)
	cpu.Resources["cpu"] = 1
	for name, tc := range map[string]struct {
		req  PodRequest
		want func(error) bool
	}{
		"no pod":                       {PodRequest{Containers: []ContainerRequest{asks("c", 1)}}, errdefs.IsInvalidArgument},
		"no container":                 {request("p", "", 1), errdefs.IsInvalidArgument},
		"no role":                      {podOf("p", ContainerRequest{Name: "c"}), errdefs.IsInvalidArgument},
		"a negative number":            {request("p", "c", -1), errdefs.IsInvalidArgument},
		"a number beyond reason":       {request("p", "c", 1<<40), errdefs.IsInvalidArgument},
		"a resource that is no device": {podOf("p", cpu), errdefs.IsInvalidArgument},
		"another number than granted":  {request("a", "c", 2), errdefs.IsFailedPrecondition},
		"nothing where it has some":    {request("a", "c", 0), errdefs.IsFailedPrecondition},
	} {
		if v, err := m.Admit(t.Context(), tc.req); !tc.want(err) {
			t.Errorf("%s: got %v, %v", name, v, err)
		}
	}
	admit(t, m, podOf("p", ContainerRequest{Name: "none", Role: alloc.Init}))
	if n := len(m.Grants()); n != 1 {
		t.Errorf("%d grants, want 1", n)
	}
	if _, err := m.Grant(t.Context(), podOf("p").container("none")); !errdefs.IsNotFound(err) {
		t.Errorf("of a container without devices: %v", err)
	}
}

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

func TestReconcileFreesWhatThePodsThatAreGoneHad(t *testing.T) {
	m, _ := newTestManager(t, "w0", "w1", "w2")
	for _, uid := range []string{"a", "b", "c"} {
		admit(t, m, request(uid, "c", 1))
	}
	if err := m.Reconcile(t.Context(), map[string]bool{"b": true, "a": false}, nil); err != nil {
		t.Fatal(err)
	}
	if g := m.Grants(); len(g) != 1 || g[0].PodUID != "b" || g[0].PodName != "p-b" {
		t.Errorf("left: %+v", g)
	}
	grant(t, m, request("d", "c", 2), "w0", "w2")
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

func TestReleaseThatFailsKeepsTheDevices(t *testing.T) {
	m, _ := newTestManager(t, "w0")
	grant(t, m, request("a", "c", 1), "w0")
	defer failpoint.Arm("devices/release/removed", func() error { return errors.New("disk gone") })()
	if err := m.Release(t.Context(), "a"); err == nil {
		t.Fatal("no error")
	}
	notReady(t, m, request("b", "c", 1))
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

func TestADamagedRecordStopsNewGrantsWhileItsPodLives(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	db := open(t, path)
	src := &benchSource{}
	src.set("w0", "w1")
	m := settledManager(t, db, src)
	grant(t, m, request("good", "c", 1), "w0")
	if err := state.NewTable[string](db, tableName).Put("bad", "not a record"); err != nil {
		t.Fatal(err)
	}

	m = settledManager(t, db, src)
	grant(t, m, request("good", "c", 1), "w0")
	notReady(t, m, request("new", "c", 1), "damaged ledger record", `"bad"`)
	if p := m.Problems(); len(p) != 1 || !strings.Contains(p[0].Message, `"bad"`) {
		t.Errorf("problems: %v", p)
	}
	if err := m.Reconcile(t.Context(), map[string]bool{"good": true, "bad": true, "new": true}, []Holding{{PodUID: "bad", Container: "c"}}); err != nil {
		t.Fatal(err)
	}
	notReady(t, m, request("new", "c", 1), `"bad"`)
	ticked := watch(t, m)
	if err := m.Release(t.Context(), "bad"); err != nil || !ticked() {
		t.Fatalf("release: %v", err)
	}
	grant(t, m, request("new", "c", 1), "w1")

	// A record of a pod that is long gone stops nobody for longer than the first Reconcile.
	if err := state.NewTable[string](db, tableName).Put("ghost", "not a record"); err != nil {
		t.Fatal(err)
	}
	src.set("w0", "w1", "w2")
	m = settledManager(t, db, src)
	notReady(t, m, request("newer", "c", 1), `"ghost"`)
	ticked = watch(t, m)
	if err := m.Reconcile(t.Context(), map[string]bool{"good": true, "new": true, "newer": true}, nil); err != nil || !ticked() {
		t.Fatalf("reconcile: %v", err)
	}
	grant(t, m, request("newer", "c", 1), "w2")
}

// The whole of it with real folders, a real ledger and a real device node.
func TestCDIDevicesEndToEnd(t *testing.T) {
	root := t.TempDir()
	etc, run := filepath.Join(root, "etc"), filepath.Join(root, "run")
	m, err := New(Config{DB: open(t, filepath.Join(root, "agent.db")), CDI: cdi.Config{Dirs: []string{etc, run}}, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Reconcile(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ticks, stop := m.Subscribe()
	defer stop()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()

	notReady(t, m, request("a", "c", 1), "no device of this resource is defined (looked in "+etc+", "+run+")")
	if err := os.MkdirAll(etc, 0o755); err != nil {
		t.Fatal(err)
	}
	spec := `{"cdiVersion": "0.5.0", "kind": "example.com/widget", "devices": [
		{"name": "w0", "containerEdits": {"deviceNodes": [{"path": "/dev/widget", "hostPath": "/dev/null", "type": "c", "major": 1, "minor": 3}]}},
		{"name": "w1", "containerEdits": {"deviceNodes": [{"path": "/dev/widget", "hostPath": "` + root + `/node"}]}}]}`
	if err := os.WriteFile(filepath.Join(etc, "widget.json"), []byte(spec), 0o644); err != nil {
		t.Fatal(err)
	}
	timeout := time.After(time.Minute)
	for m.Resources()[widget] != (inventory.Quantity{Capacity: 1, Allocatable: 1}) { // the other has no node
		select {
		case <-ticks:
		case <-timeout:
			t.Fatalf("resources are %v; problems: %v", m.Resources(), m.Problems())
		}
	}
	grant(t, m, request("a", "c", 1), "w0")
	notReady(t, m, request("b", "c", 1), `; device "w1" of `+filepath.Join(etc, "widget.json")+": "+root+"/node does not exist")
}

func TestNewNeedsItsConfig(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("no error")
	}
}
