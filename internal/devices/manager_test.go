package devices

import (
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

	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/failpoint"
	"monopod.dev/monopod/internal/state"
)

const widget = "example.com/widget"

// benchSource is a source whose devices the test lays out.
type benchSource struct {
	mu     sync.Mutex
	snap   inventory.Snapshot
	faults map[string]error // by name
	block  chan struct{}    // when not nil, Check waits for it to be closed
	checks chan<- string    // when not nil, Check sends the name first
}

func (s *benchSource) set(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snap = inventory.Snapshot{Resources: []string{widget}, Places: []string{"/etc/cdi"}}
	for _, n := range names {
		s.snap.Devices = append(s.snap.Devices, inventory.Device{Resource: widget, Name: n, Origin: "/etc/cdi/w.json"})
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

func newTestManager(t *testing.T, names ...string) (*Manager, *benchSource) {
	t.Helper()
	src := &benchSource{faults: map[string]error{}}
	src.set(names...)
	return newManager(open(t, filepath.Join(t.TempDir(), "agent.db")), src, quiet()), src
}

func request(pod, container string, n int64) GrantRequest {
	return GrantRequest{PodUID: pod, PodNamespace: "default", PodName: "p-" + pod, Container: container, Resources: map[string]int64{widget: n}}
}

// grant expects devices; names are given without the resource.
func grant(t *testing.T, m *Manager, req GrantRequest, want ...string) {
	t.Helper()
	g, err := m.Grant(t.Context(), req)
	if err != nil {
		t.Fatalf("grant for %s: %v", req, err)
	}
	var got []string
	for _, d := range g.CDIDevices {
		got = append(got, strings.TrimPrefix(d, widget+"="))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%s got %q, want %q", req, got, want)
	}
}

// notReady expects to be told to wait, in words that have all the parts in them.
func notReady(t *testing.T, m *Manager, req GrantRequest, parts ...string) {
	t.Helper()
	g, err := m.Grant(t.Context(), req)
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

func ticked(m *Manager) bool {
	select {
	case <-m.Changed():
		return true
	default:
		return false
	}
}

func TestGrantIsIdempotentAndSurvivesTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	db := open(t, path)
	src := &benchSource{}
	src.set("w0", "w1", "w2")
	m := newManager(db, src, quiet())
	grant(t, m, request("a", "c", 2), "w0", "w1")
	grant(t, m, request("a", "c", 2), "w0", "w1")
	grant(t, m, request("b", "c", 1), "w2")
	before := m.Grants()
	db.Close()

	src.set("w2", "w1", "w0", "v9") // another order, and more of them
	m = newManager(open(t, path), src, quiet())
	if got := fmt.Sprint(m.Grants()); got != fmt.Sprint(before) {
		t.Errorf("grants after a restart: %s\nwant %v", got, before)
	}
	grant(t, m, request("a", "c", 2), "w0", "w1")
	grant(t, m, request("c", "c", 1), "v9")
	notReady(t, m, request("d", "c", 1), "1 wanted, 0 free (of 4, 4 in use)")
}

func TestGrantRefusesWhatMakesNoSense(t *testing.T) {
	m, _ := newTestManager(t, "w0", "w1")
	grant(t, m, request("a", "c", 1), "w0")
	for name, tc := range map[string]struct {
		req  GrantRequest
		want func(error) bool
	}{
		"no pod":                       {GrantRequest{Container: "c"}, errdefs.IsInvalidArgument},
		"no container":                 {GrantRequest{PodUID: "p"}, errdefs.IsInvalidArgument},
		"a negative number":            {request("p", "c", -1), errdefs.IsInvalidArgument},
		"a number beyond reason":       {request("p", "c", 1<<40), errdefs.IsInvalidArgument},
		"a resource that is no device": {GrantRequest{PodUID: "p", Container: "c", Resources: map[string]int64{"cpu": 1}}, errdefs.IsInvalidArgument},
		"another number than granted":  {request("a", "c", 2), errdefs.IsFailedPrecondition},
		"nothing where it has some":    {request("a", "c", 0), errdefs.IsFailedPrecondition},
	} {
		if g, err := m.Grant(t.Context(), tc.req); !tc.want(err) {
			t.Errorf("%s: got %v, %v", name, g, err)
		}
	}
	grant(t, m, GrantRequest{PodUID: "p", Container: "none"})
	if n := len(m.Grants()); n != 1 {
		t.Errorf("%d grants, want 1", n)
	}
}

func TestAShortResourceHoldsThePodUntilADeviceComesFree(t *testing.T) {
	m, src := newTestManager(t, "w0")
	grant(t, m, request("a", "c", 1), "w0")
	notReady(t, m, request("b", "c", 1), "0 free")
	unknown := request("b", "c", 0)
	unknown.Resources["other.com/gpu"] = 1
	src.snap.Problems = []Problem{{Paths: []string{"/etc/cdi/bad.json"}, Message: "is not JSON"}, {Resource: widget, Paths: []string{"/x"}, Message: "not this"}}
	_, err := m.Grant(t.Context(), unknown)
	if want := "other.com/gpu is not ready: no device of this resource is defined (looked in /etc/cdi); /etc/cdi/bad.json: is not JSON"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}

	if ticked(m) {
		t.Error("a tick too early")
	}
	if err := m.Release(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if !ticked(m) {
		t.Error("no tick when a device came free")
	}
	grant(t, m, request("b", "c", 1), "w0")
	for range 2 { // idempotent, and nothing to tell
		if err := m.Release(t.Context(), "a"); err != nil || ticked(m) {
			t.Errorf("release of nothing: %v", err)
		}
	}
}

func TestAVanishedDeviceIsSaidAndNeverReplaced(t *testing.T) {
	m, src := newTestManager(t, "w0", "w1")
	grant(t, m, request("a", "c", 1), "w0")
	src.set("w1")
	notReady(t, m, request("a", "c", 1), `device "w0", which this container was granted, is not there any more`)
	if g := m.Grants()[0].Devices[0]; !g.Missing || g.CDIName != widget+"=w0" {
		t.Errorf("listed as %+v", g)
	}
	if n := m.Resources()[widget]; n != 1 {
		t.Errorf("capacity %d", n)
	}
	grant(t, m, request("b", "c", 1), "w1")
	src.set("w0", "w1")
	grant(t, m, request("a", "c", 1), "w0") // it has come back: the same
	src.faults["w0"] = errors.New("/dev/w0 does not exist")
	notReady(t, m, request("a", "c", 1), "a device that this container was granted cannot be used: /dev/w0 does not exist")
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
	first, second := request("a", "init1", 2), request("a", "init2", 1)
	first.Init, second.Init = true, true
	grant(t, m, first, "w0", "w1")
	grant(t, m, request("a", "sidecar", 1), "w0")
	grant(t, m, second, "w1") // w0 is the sidecar's now, which goes on
	notReady(t, m, request("b", "c", 2))
	grant(t, m, request("a", "main", 1), "w1")
	grant(t, m, request("b", "c", 1), "w2")
	grant(t, m, first, "w0", "w1") // the pod starts over
}

func TestReconcileFreesWhatThePodsThatAreGoneHad(t *testing.T) {
	m, _ := newTestManager(t, "w0", "w1", "w2")
	for _, uid := range []string{"a", "b", "c"} {
		if _, err := m.Grant(t.Context(), request(uid, "c", 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Reconcile(t.Context(), map[string]bool{"b": true, "a": false}); err != nil {
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
			m := newManager(db, src, quiet())
			disarm := failpoint.Arm(point, func() error { return errors.New("disk gone") })
			_, err := m.Grant(t.Context(), request("a", "c", 1))
			disarm()
			if err == nil || errdefs.IsUnavailable(err) {
				t.Fatalf("got %v", err)
			}
			if got := len(m.Grants()) == 1; got != kept {
				t.Errorf("in memory: %v, want %v", got, kept)
			}
			db.Close()
			m = newManager(open(t, path), src, quiet())
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
		for _, container := range []string{"c", "c", "d"} { // one of them twice: a retry
			wg.Go(func() {
				if _, err := m.Grant(t.Context(), request(fmt.Sprint(i), container, 1)); err != nil {
					t.Error(err)
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
		_, err := m.Grant(t.Context(), request("a", "c", 1))
		first <- err
	}()
	<-checks

	src.mu.Lock()
	src.block = nil
	src.mu.Unlock()
	grant(t, m, request("b", "c", 1), "w1") // w0 is spoken for
	if n := m.Resources()[widget]; n != 2 {
		t.Errorf("capacity %d", n)
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
		_, err := m.Grant(t.Context(), request("a", "c", 1))
		first <- err
	}()
	<-checks
	notReady(t, m, request("b", "c", 1))
	if ticked(m) {
		t.Error("a tick too early")
	}
	close(block)
	if err := <-first; err == nil {
		t.Error("no error")
	}
	if !ticked(m) {
		t.Error("no tick")
	}
}

func TestADamagedRecordStopsNewGrantsWhileItsPodLives(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	db := open(t, path)
	src := &benchSource{}
	src.set("w0", "w1")
	m := newManager(db, src, quiet())
	grant(t, m, request("good", "c", 1), "w0")
	if err := state.NewTable[string](db, tableName).Put("bad", "not a record"); err != nil {
		t.Fatal(err)
	}

	m = newManager(db, src, quiet())
	grant(t, m, request("good", "c", 1), "w0")
	notReady(t, m, request("new", "c", 1), "damaged ledger record", `"bad"`)
	if p := m.Problems(); len(p) != 1 || !strings.Contains(p[0].Message, `"bad"`) {
		t.Errorf("problems: %v", p)
	}
	if err := m.Reconcile(t.Context(), map[string]bool{"good": true, "bad": true, "new": true}); err != nil {
		t.Fatal(err)
	}
	notReady(t, m, request("new", "c", 1), `"bad"`)
	if err := m.Release(t.Context(), "bad"); err != nil || !ticked(m) {
		t.Fatalf("release: %v", err)
	}
	grant(t, m, request("new", "c", 1), "w1")

	// A record of a pod that is long gone stops nobody for longer than the first Reconcile.
	if err := state.NewTable[string](db, tableName).Put("ghost", "not a record"); err != nil {
		t.Fatal(err)
	}
	src.set("w0", "w1", "w2")
	m = newManager(db, src, quiet())
	notReady(t, m, request("newer", "c", 1), `"ghost"`)
	if err := m.Reconcile(t.Context(), map[string]bool{"good": true, "new": true, "newer": true}); err != nil || !ticked(m) {
		t.Fatalf("reconcile: %v", err)
	}
	grant(t, m, request("newer", "c", 1), "w2")
}

// The whole of it with real folders, a real ledger and a real device node.
func TestCDIDevicesEndToEnd(t *testing.T) {
	root := t.TempDir()
	etc, run := filepath.Join(root, "etc"), filepath.Join(root, "run")
	m, err := New(Config{DB: open(t, filepath.Join(root, "agent.db")), CDISpecDirs: []string{etc, run}, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
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
	for m.Resources()[widget] != 2 {
		select {
		case <-m.Changed():
		case <-timeout:
			t.Fatalf("resources are %v; problems: %v", m.Resources(), m.Problems())
		}
	}
	grant(t, m, request("a", "c", 1), "w0")
	notReady(t, m, request("b", "c", 1), filepath.Join(etc, "widget.json"), `"example.com/widget=w1"`, root+"/node does not exist")
}

func TestNewNeedsItsConfig(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("no error")
	}
}
