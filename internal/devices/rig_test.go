package devices

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/answer"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/source"
	"monopod.dev/monopod/internal/devices/topology"
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
	prepare  func(c source.Container, resource string, names []string) (answer.Answer, error)
	prepared []string // the calls of Prepare
}

func (s *benchSource) Name() string { return cmp.Or(s.name, "cdi") }

func (s *benchSource) Prepare(_ context.Context, c source.Container, resource string, names []string) (a answer.Answer, err error) {
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
	return alignedManager(t, db, new(topology.Aligner), sources...)
}

// alignedManager is one with a policy about NUMA nodes.
func alignedManager(t testing.TB, db *state.DB, aligner *topology.Aligner, sources ...source.Source) *Manager {
	t.Helper()
	m := newManager(Config{DB: db, Log: quiet(), Boot: "one"}, aligner, sources...)
	m.clerk.book.Compare()
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
