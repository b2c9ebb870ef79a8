package admin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/admin"
	"monopod.dev/monopod/internal/admin/client"
	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/cdi"
	"monopod.dev/monopod/internal/devices/report"
	"monopod.dev/monopod/internal/devices/source"
	"monopod.dev/monopod/internal/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	widget = "example.com/widget"
	// patience only ends a test that has failed.
	patience = time.Minute
)

// rig is a served socket with a real manager behind it, and a host with two widgets that are pipes.
type rig struct {
	t       *testing.T
	dir     string
	socket  string
	manager *devices.Manager
	client  *client.Client
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "a") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &rig{t: t, dir: dir, socket: filepath.Join(dir, protocol.SocketName)}
	r.plug("w0")
	r.plug("w1")
	r.spec("w0", "w1")
	db, _, err := state.Open(state.Config{Path: filepath.Join(dir, "agent.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	log := slog.New(slog.DiscardHandler)
	if r.manager, err = devices.New(devices.Config{DB: db, CDI: cdi.Config{Dirs: []string{filepath.Join(dir, "cdi")}}, Boot: "one", Log: log}); err != nil {
		t.Fatal(err)
	}
	if err := r.manager.Reconcile(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	r.background("devices", r.manager.Run)
	r.serve(admin.Config{Socket: r.socket, Devices: r.manager, Log: log, Status: func(context.Context) protocol.Status { return protocol.Status{Node: "edge-1"} }})
	r.client = client.New(r.socket)
	t.Cleanup(r.client.Close)
	return r
}

// background runs f until the test ends.
func (r *rig) background(name string, f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("%s: %v", name, err)
		}
	}
	r.t.Cleanup(stop)
	return stop
}

// serve starts a server, and returns when it answers.
func (r *rig) serve(cfg admin.Config) (stop func()) {
	r.t.Helper()
	s, err := admin.New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	stop = r.background("admin", s.Run)
	select {
	case <-s.Ready():
	case <-time.After(patience):
		r.t.Fatal("no socket at " + cfg.Socket)
	}
	return stop
}

func (r *rig) node(name string) string { return filepath.Join(r.dir, "dev", name) }

func (r *rig) plug(name string) {
	r.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Join(r.dir, "dev"), 0o755), unix.Mkfifo(r.node(name), 0o600)); err != nil {
		r.t.Fatal(err)
	}
}

// spec defines the widgets that there are.
func (r *rig) spec(names ...string) {
	r.t.Helper()
	var all []string
	for _, n := range names {
		all = append(all, fmt.Sprintf(`{"name": %q, "containerEdits": {"deviceNodes": [{"path": %q}]}}`, n, r.node(n)))
	}
	text := fmt.Sprintf(`{"cdiVersion": "0.3.0", "kind": %q, "devices": [%s]}`, widget, strings.Join(all, ", "))
	path := filepath.Join(r.dir, "cdi", "widget.json")
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path)); err != nil {
		r.t.Fatal(err)
	}
}

// admit grants a pod so many widgets, and returns when they are on record: they are told of from then on.
func (r *rig) admit(pod string, n int64) {
	r.t.Helper()
	v, err := r.manager.Admit(r.t.Context(), devices.PodRequest{UID: "uid-" + pod, Namespace: "default", Name: pod, Created: time.Unix(1, 0),
		Containers: []devices.ContainerRequest{{Name: "main", Role: alloc.Main, Resources: map[string]int64{widget: n}}}})
	if err != nil || v.Phase != devices.Admitted {
		r.t.Fatalf("%+v, %v", v, err)
	}
	if _, err := r.manager.Grant(r.t.Context(), source.Container{PodUID: "uid-" + pod, PodNamespace: "default", PodName: pod, Name: "main"}); err != nil {
		r.t.Fatal(err)
	}
}

func TestDevicesAreTold(t *testing.T) {
	r := newRig(t)
	r.admit("train", 1)
	l, err := r.client.Devices(t.Context(), "")
	if err != nil || len(l.Devices) != 2 || len(l.Problems) != 0 {
		t.Fatalf("%+v, %v", l, err)
	}
	d := l.Devices[0]
	if d.Name != "w0" || d.Health != report.Healthy || d.Source != filepath.Join(r.dir, "cdi", "widget.json") || len(d.Holders) != 1 || d.Holders[0].String() != "default/train/main" {
		t.Errorf("%+v", d)
	}
	if l, err = r.client.Devices(t.Context(), widget); err != nil || len(l.Devices) != 2 {
		t.Errorf("of one resource: %+v, %v", l, err)
	}
	if _, err = r.client.Devices(t.Context(), "example.com/other"); !errdefs.IsNotFound(err) || err.Error() != "no device of example.com/other is known here" {
		t.Errorf("of a resource that nobody knows: %v", err)
	}
	if s, err := r.client.Status(t.Context()); err != nil || s.Node != "edge-1" {
		t.Errorf("%+v, %v", s, err)
	}
}

// watch collects events in the background.
func (r *rig) watch(resource string) (events <-chan report.Event, stop func()) {
	c := make(chan report.Event)
	return c, r.background("watch", func(ctx context.Context) error {
		err := r.client.WatchDevices(ctx, resource, func(e report.Event) error {
			select {
			case c <- e:
			case <-ctx.Done():
			}
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	})
}

// next returns the next event as a line.
func next(t *testing.T, events <-chan report.Event) string {
	t.Helper()
	select {
	case e := <-events:
		switch {
		case e.Device != nil:
			return fmt.Sprint(e.Type, " ", e.Device.Name, " ", e.Device.Health, " ", e.Device.Holders)
		case e.Problem != nil:
			return fmt.Sprint(e.Type, " ", filepath.Base(e.Problem.Paths[0]))
		}
		return string(e.Type)
	case <-time.After(patience):
		t.Fatal("no event")
	}
	return ""
}

// awaitEvent reads until an event comes, and returns how many came before it.
func awaitEvent(t *testing.T, events <-chan report.Event, want string) (before []string) {
	t.Helper()
	for {
		got := next(t, events)
		if strings.HasPrefix(got, want) {
			return before
		}
		before = append(before, got)
	}
}

func TestAWatchTellsEachChange(t *testing.T) {
	r := newRig(t)
	events, _ := r.watch("")
	for _, want := range []string{"listed w0 Healthy []", "listed w1 Healthy []", "synced"} {
		if got := next(t, events); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	r.admit("train", 1)
	if before := awaitEvent(t, events, "changed w0 Healthy [default/train/main]"); len(before) > 0 {
		t.Errorf("before it: %q", before)
	}
	if err := os.Remove(r.node("w1")); err != nil {
		t.Fatal(err)
	}
	awaitEvent(t, events, "changed w1 Unhealthy []")
	r.plug("w1")
	awaitEvent(t, events, "changed w1 Healthy []")
	r.spec("w1")
	awaitEvent(t, events, "changed w0 Missing [default/train/main]")
	if err := r.manager.Release(t.Context(), "uid-train"); err != nil {
		t.Fatal(err)
	}
	awaitEvent(t, events, "removed w0")
	if err := os.WriteFile(filepath.Join(r.dir, "cdi", "bad.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	awaitEvent(t, events, "problem bad.json")
	if err := os.Remove(filepath.Join(r.dir, "cdi", "bad.json")); err != nil {
		t.Fatal(err)
	}
	awaitEvent(t, events, "solved bad.json")
}

func TestAWatchOfOneResource(t *testing.T) {
	r := newRig(t)
	events, stop := r.watch("example.com/later")
	if got := next(t, events); got != "synced" {
		t.Errorf("%q", got)
	}
	r.admit("train", 1)
	spec := `{"cdiVersion": "0.3.0", "kind": "example.com/later", "devices": [{"name": "l0"}]}`
	if err := os.WriteFile(filepath.Join(r.dir, "cdi", "later.json"), []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	awaitEvent(t, events, "added l0 Healthy []")
	stop()
}

// A watch ends with the node, and says so.
func TestAWatchEndsWithTheNode(t *testing.T) {
	r := newRig(t)
	socket := filepath.Join(r.dir, "other.sock")
	stop := r.serve(admin.Config{Socket: socket, Devices: r.manager, Status: func(context.Context) protocol.Status { return protocol.Status{} }})
	c := client.New(socket)
	defer c.Close()
	err := c.WatchDevices(t.Context(), "", func(e report.Event) error {
		if e.Type == report.Synced {
			stop()
		}
		return nil
	})
	if !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "the node at "+socket+" has ended the watch") {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a socket is left: %v", err)
	}
	broken := errors.New("broken")
	if err := r.client.WatchDevices(t.Context(), "", func(report.Event) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("the error of who listens: %v", err)
	}
}

func TestTheSocket(t *testing.T) {
	old := syscall.Umask(0) // the worst that there is
	defer syscall.Umask(old)
	r := newRig(t)
	info, err := os.Lstat(r.socket)
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if left, _ := filepath.Glob(r.socket + "~"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	stale := filepath.Join(r.dir, "stale.sock")
	l, err := net.Listen("unix", stale)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	status := func(context.Context) protocol.Status { return protocol.Status{Node: "new"} }
	c := client.New(stale)
	defer c.Close()
	if _, err := c.Status(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("of a socket that nobody serves: %v", err)
	}
	if err := os.WriteFile(stale+"~", []byte("of a killed one"), 0o666); err != nil {
		t.Fatal(err)
	}
	r.serve(admin.Config{Socket: stale, Status: status})
	if s, err := c.Status(t.Context()); err != nil || s.Node != "new" {
		t.Errorf("a stale socket is not replaced: %v", err)
	}
	file := filepath.Join(r.dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := admin.New(admin.Config{Socket: file, Status: status})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), file+": something else is there") {
		t.Errorf("over a file: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(r.dir, "*~")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	absent := client.New(filepath.Join(r.dir, "absent"))
	defer absent.Close()
	if _, err := absent.Devices(t.Context(), ""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of no socket: %v", err)
	}
}

// raw sends a request as no client of ours does.
func (r *rig) raw(request string) (code int, body string) {
	r.t.Helper()
	conn, err := net.Dial("unix", r.socket)
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		r.t.Fatal(err)
	}
	all, err := io.ReadAll(conn)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		r.t.Fatal(err)
	}
	if _, err := fmt.Sscanf(string(all), "HTTP/1.1 %d", &code); err != nil {
		r.t.Fatalf("answered %q", all)
	}
	return code, string(all[bytes.Index(all, []byte("\r\n\r\n"))+4:])
}

func TestWhatIsRefused(t *testing.T) {
	r := newRig(t)
	for request, want := range map[string]struct {
		code int
		text string
	}{
		"GET /v2/devices HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n":                      {http.StatusNotFound, `{"error":"GET /v2/devices is nothing that this node knows`},
		"DELETE /v1/devices HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n":                   {http.StatusNotFound, "DELETE /v1/devices is nothing"},
		"GET /v1/devices?watch=yes HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n":            {http.StatusBadRequest, `use true or false`},
		"GET /v1/status HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx": {http.StatusBadRequest, "takes no body"},
		"GET /v1/status HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n":  {http.StatusRequestHeaderFieldsTooLarge, ""},
		"nonsense\r\n\r\n": {http.StatusBadRequest, ""},
	} {
		if code, body := r.raw(request); code != want.code || !strings.Contains(body, want.text) {
			t.Errorf("%.40q: %d, %q", request, code, body)
		}
	}
}

func TestRequestsAreBounded(t *testing.T) {
	r := newRig(t)
	var stops []func()
	for range 64 {
		events, stop := r.watch("")
		awaitEvent(t, events, "synced")
		stops = append(stops, stop)
	}
	if _, err := r.client.Status(t.Context()); !errdefs.IsResourceExhausted(err) {
		t.Errorf("the 65th request: %v", err)
	}
	for _, stop := range stops {
		stop()
	}
	for end := time.Now().Add(patience); ; { // when a place is free again, nobody tells
		_, err := r.client.Status(t.Context())
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// A process without the role says so.
func TestWithoutDevices(t *testing.T) {
	r := newRig(t)
	socket := filepath.Join(r.dir, "runtime.sock")
	r.serve(admin.Config{Socket: socket, Status: func(context.Context) protocol.Status { return protocol.Status{} }})
	c := client.New(socket)
	defer c.Close()
	if _, err := c.Devices(t.Context(), ""); !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), "does not run the role devices") {
		t.Errorf("%v", err)
	}
	if err := c.WatchDevices(t.Context(), "", nil); !errdefs.IsNotImplemented(err) {
		t.Errorf("%v", err)
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	r := newRig(t)
	socket := filepath.Join(r.dir, "web.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == protocol.StatusPath {
			w.WriteHeader(http.StatusTeapot)
		}
		_, _ = io.WriteString(w, "<html>")
	})}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	defer func() { server.Close(); <-done }()
	c := client.New(socket)
	defer c.Close()
	if _, err := c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "418") {
		t.Errorf("%v", err)
	}
	if _, err := c.Devices(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "does not answer as a node does") {
		t.Errorf("%v", err)
	}
	if err := c.WatchDevices(t.Context(), "", nil); err == nil || !strings.Contains(err.Error(), "sends what is no event") {
		t.Errorf("%v", err)
	}
}

func TestConfigurations(t *testing.T) {
	for _, cfg := range []admin.Config{{}, {Socket: "/x"}} {
		if _, err := admin.New(cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}

func TestATraceIsTold(t *testing.T) {
	r := newRig(t)
	socket := filepath.Join(r.dir, "trace.sock")
	begin := time.Unix(1_800_000_000, 1000).UTC()
	want := protocol.Trace{Namespace: "ns", Pod: "p", UID: "u", Steps: []protocol.Step{{Step: "POST", Begin: begin, End: &begin}, {Step: "pull", Container: "a", Begin: begin}}, NotAsked: []protocol.Unknown{}}
	r.serve(admin.Config{Socket: socket, Status: func(context.Context) protocol.Status { return protocol.Status{} },
		Trace: func(_ context.Context, namespace, name string) (protocol.Trace, error) {
			if namespace != "ns" || name != "p" {
				return protocol.Trace{}, errdefs.ErrNotFound.WithMessage("there is no pod " + namespace + "/" + name)
			}
			return want, nil
		}})
	c := client.New(socket)
	defer c.Close()
	if got, err := c.Trace(t.Context(), "ns", "p"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := c.Trace(t.Context(), "ns", "a&b=c"); !errdefs.IsNotFound(err) || err.Error() != "there is no pod ns/a&b=c" {
		t.Errorf("of one that nobody knows: %v", err)
	}
	if _, err := c.Trace(t.Context(), "", "p"); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), `namespace is ""`) {
		t.Errorf("without a namespace: %v", err)
	}
	if _, err := r.client.Trace(t.Context(), "ns", "p"); !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), "knows no pods") {
		t.Errorf("of a process without pods: %v", err)
	}
}
