package podresources

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/internal/devices/inventory"
)

const patience = time.Minute

type world struct {
	pods    []*v1.Pod
	devices []devices.DeviceStatus
	grants  []devices.GrantRecord
}

func (w *world) Pods() []*v1.Pod                 { return w.pods }
func (w *world) Devices() []devices.DeviceStatus { return w.devices }
func (w *world) Grants() []devices.GrantRecord   { return w.grants }
func (w *world) Pod(namespace, name string) (*v1.Pod, bool) {
	for _, p := range w.pods {
		if p.Namespace == namespace && p.Name == name {
			return p, true
		}
	}
	return nil, false
}

// log is a log that is looked at while it is written.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) has(words string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), words)
}

// bench is a server.
type bench struct {
	socket string
	log    *log
	stop   func()
}

// start serves the world in a new folder, whose path is short.
func start(t *testing.T, w *world) *bench {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	dir, err := os.MkdirTemp("", "pr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return startAt(t, w, filepath.Join(dir, "pod-resources", "kubelet.sock"))
}

func startAt(t *testing.T, w *world, socket string) *bench {
	t.Helper()
	b := &bench{socket: socket, log: &log{}}
	cfg := Config{Socket: socket, Log: slog.New(slog.NewTextHandler(b.log, nil))}
	if w != nil {
		cfg.Pods, cfg.Devices = w, w
	} else {
		cfg.Pods = &world{}
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	b.stop = func() { cancel(); <-done }
	t.Cleanup(b.stop)
	return b
}

func (b *bench) awaitLog(t *testing.T, words string) {
	t.Helper()
	for end := time.Now().Add(patience); !b.log.has(words); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never logged %q", words)
		}
	}
}

// dial connects as exporters do.
func (b *bench) dial(t *testing.T) api.PodResourcesListerClient {
	t.Helper()
	b.awaitLog(t, "PodResources is served")
	conn, err := grpc.NewClient("passthrough:///"+b.socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return api.NewPodResourcesListerClient(conn)
}

func TestServer(t *testing.T) {
	w := &world{
		pods:    []*v1.Pod{pod("p", v1.PodRunning, "a"), pod("done", v1.PodSucceeded, "a")},
		devices: []devices.DeviceStatus{{Device: inventory.Device{Resource: gpu, Name: "0", Aliases: []string{"GPU-1"}}}, {Device: inventory.Device{Resource: gpu, Name: "1", Unhealthy: "lost"}}},
		grants:  []devices.GrantRecord{grant("p", "a", devices.GrantedDevice{Resource: gpu, Name: "0", Aliases: []string{"GPU-1"}})},
	}
	b := start(t, w)
	c := b.dial(t)
	l, err := c.List(t.Context(), &api.ListPodResourcesRequest{})
	if got := say(l.GetPodResources()...); err != nil || got != "ns/p: a[nvidia.com/gpu 0,GPU-1]" {
		t.Errorf("list %s, %v", got, err)
	}
	g, err := c.Get(t.Context(), &api.GetPodResourcesRequest{PodNamespace: "ns", PodName: "p"})
	if got := say(g.GetPodResources()); err != nil || got != "ns/p: a[nvidia.com/gpu 0,GPU-1]" {
		t.Errorf("get %s, %v", got, err)
	}
	// As with kubelets, a pod that is asked for by name may have finished.
	g, err = c.Get(t.Context(), &api.GetPodResourcesRequest{PodNamespace: "ns", PodName: "done"})
	if got := say(g.GetPodResources()); err != nil || got != "ns/done: a" {
		t.Errorf("get %s, %v", got, err)
	}
	if _, err = c.Get(t.Context(), &api.GetPodResourcesRequest{PodNamespace: "other", PodName: "p"}); status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "pod p in namespace other not found") {
		t.Errorf("get of nothing: %v", err)
	}
	a, err := c.GetAllocatableResources(t.Context(), &api.AllocatableResourcesRequest{})
	if err != nil || len(a.Devices) != 1 || sayDevice(a.Devices[0]) != "[nvidia.com/gpu 0,GPU-1]" || len(a.CpuIds)+len(a.Memory) > 0 {
		t.Errorf("allocatable %v, %v", a, err)
	}
	for path, want := range map[string]fs.FileMode{b.socket: fs.ModeSocket | 0o600, filepath.Dir(b.socket): fs.ModeDir | 0o750} {
		if st, err := os.Stat(path); err != nil || st.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", path, st.Mode(), err, want)
		}
	}
	// An open connection does not hold up the end, after which there is no socket.
	b.stop()
	if _, err := os.Lstat(b.socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// As many devices as a plugin may have go through a client with gRPC's own limits.
func TestManyDevices(t *testing.T) {
	w := &world{}
	for i := range 65536 {
		w.devices = append(w.devices, devices.DeviceStatus{Device: inventory.Device{Resource: "example.com/some-device", Name: fmt.Sprintf("device-%05d", i), NUMA: []int{i % 2}}})
	}
	a, err := start(t, w).dial(t).GetAllocatableResources(t.Context(), &api.AllocatableResourcesRequest{})
	if err != nil || len(a.Devices) != 65536 {
		t.Errorf("%d devices, %v", len(a.GetDevices()), err)
	}
}

func TestNobodyHasDevices(t *testing.T) {
	c := start(t, nil).dial(t)
	if l, err := c.List(t.Context(), &api.ListPodResourcesRequest{}); err != nil || len(l.PodResources) > 0 {
		t.Errorf("list %v, %v", l, err)
	}
	if a, err := c.GetAllocatableResources(t.Context(), &api.AllocatableResourcesRequest{}); err != nil || len(a.Devices) > 0 {
		t.Errorf("allocatable %v, %v", a, err)
	}
}

func TestTooManyRequestsAreTurnedAway(t *testing.T) {
	c := start(t, &world{}).dial(t)
	var answered, refused int
	for refused == 0 && answered < 1e6 {
		var all sync.WaitGroup
		errs := make(chan error, 64)
		for range cap(errs) {
			all.Go(func() {
				_, err := c.List(t.Context(), &api.ListPodResourcesRequest{})
				errs <- err
			})
		}
		all.Wait()
		close(errs)
		for err := range errs {
			switch status.Code(err) {
			case codes.OK:
				answered++
			case codes.ResourceExhausted:
				refused++
			default:
				t.Fatal(err)
			}
		}
	}
	if answered == 0 || refused == 0 {
		t.Errorf("%d answered, %d refused", answered, refused)
	}
}

func TestConnectionsAreLimited(t *testing.T) {
	b := start(t, &world{})
	c := b.dial(t)
	var open []net.Conn
	defer func() {
		for _, conn := range open {
			conn.Close()
		}
	}()
	for range maxConnections {
		conn, err := net.Dial("unix", b.socket)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := c.List(t.Context(), &api.ListPodResourcesRequest{}, grpc.WaitForReady(true))
		answered <- err
	}()
	open[0].Close()
	select {
	case err := <-answered:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("not answered although there is room for a connection")
	}
	b.stop()
}

// Two agents: the one that was first is left alone, and the other one takes over when it has gone.
func TestLivingServerIsLeft(t *testing.T) {
	first := start(t, &world{pods: []*v1.Pod{pod("first", v1.PodRunning, "a")}})
	first.awaitLog(t, "PodResources is served")
	second := startAt(t, &world{pods: []*v1.Pod{pod("second", v1.PodRunning, "a")}}, first.socket)
	second.awaitLog(t, "another program serves this socket")
	names := func(b *bench) string {
		l, err := b.dial(t).List(t.Context(), &api.ListPodResourcesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return say(l.PodResources...)
	}
	if got := names(first); got != "ns/first: a" {
		t.Errorf("list %s", got)
	}
	first.stop()
	if got := names(second); got != "ns/second: a" {
		t.Errorf("list %s", got)
	}
}

func TestConfig(t *testing.T) {
	w := &world{}
	for name, cfg := range map[string]Config{
		"not absolute": {Socket: "kubelet.sock", Pods: w, Log: slog.New(slog.DiscardHandler)},
		"107":          {Socket: "/" + strings.Repeat("x", 107), Pods: w, Log: slog.New(slog.DiscardHandler)},
		"Config.Pods":  {Socket: DefaultSocket, Log: slog.New(slog.DiscardHandler)},
		"Config.Log":   {Socket: DefaultSocket, Pods: w},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
