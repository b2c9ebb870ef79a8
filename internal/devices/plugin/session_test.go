package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/examples/deviceplugin/emulator"
	"monopod.dev/monopod/internal/devices/inventory"
)

func TestDevicesComeGoAndFallIll(t *testing.T) {
	n := start(t)
	p, _ := n.plug(emulator.Config{Devices: emulator.Devices(2, 0)})
	n.awaitHealthy(resource, 2)
	p.SetHealth("dev-0", "Unhealthy")
	n.await("one unhealthy", func(s *inventory.Snapshot) bool {
		d, ok := s.Find(resource, "dev-0")
		return ok && strings.Contains(d.Unhealthy, "says that it is unhealthy") && healthy(s, resource) == 1
	})
	p.SetHealth("dev-0", "Healthy")
	n.awaitHealthy(resource, 2)
	p.SetHealth("dev-2", "Healthy")
	n.awaitHealthy(resource, 3)
	p.SetHealth("dev-1", "")
	n.await("dev-1 gone", func(s *inventory.Snapshot) bool { return len(s.Of(resource)) == 2 && healthy(s, resource) == 2 })
	p.SetDevices(nil)
	n.await("none", func(s *inventory.Snapshot) bool { return len(s.Resources) == 1 && len(s.Devices) == 0 })
}

func TestFaultsOfAListAreProblemsAsLongAsTheyLast(t *testing.T) {
	n := start(t)
	long := strings.Repeat("x", 64)
	p, _ := n.plug(emulator.Config{Devices: []*v1beta1.Device{device(long, "Healthy"), device(long, "Healthy"), device("", "Healthy")}})
	snap := n.awaitHealthy(resource, 1)
	if len(snap.Problems) != 3 {
		t.Errorf("problems: %v", snap.Problems)
	}
	for _, problem := range snap.Problems {
		if problem.Resource != resource || len(problem.Paths) != 1 || problem.Paths[0] != p.Socket() {
			t.Errorf("problem: %+v", problem)
		}
	}
	if err := n.Check(resource, long, false); err != nil {
		t.Errorf("Check: %v", err)
	}
	p.SetDevices(emulator.Devices(1, 0))
	n.await("no problems", func(s *inventory.Snapshot) bool { return len(s.Problems) == 0 })
}

func TestListOf65536Devices(t *testing.T) {
	n := start(t)
	devices := emulator.Devices(65536, 8)
	for i, d := range devices {
		d.ID = fmt.Sprintf("GPU-fef8089b-4820-abfc-e83e-94318197576e-long-name-%05d", i)
	}
	n.plug(emulator.Config{Devices: devices, Preferred: true})
	snap := n.awaitHealthy(resource, 65536)
	if len(snap.Problems) > 0 {
		t.Errorf("problems: %v", snap.Problems)
	}
}

func TestStreamThatEndsMakesDevicesUnhealthyAndThenAbsent(t *testing.T) {
	n := start(t, func(s *Source) { s.cfg.Grace = 300 * time.Millisecond })
	p, kill := n.plug(emulator.Config{Devices: emulator.Devices(2, 0)})
	n.awaitHealthy(resource, 2)
	kill()
	snap := n.awaitHealthy(resource, 0)
	if d := snap.Of(resource); len(d) != 2 || !strings.HasPrefix(d[0].Unhealthy, "the plugin of "+resource+" has been gone since 2") {
		t.Errorf("devices: %+v", d)
	}
	wantNamedOnce(t, snap, p.Socket())
	if !strings.Contains(snap.Devices[0].Unhealthy, ": it has closed its connection: it was stopped, or has crashed; if it does not come back, its devices are forgotten at 2") {
		t.Errorf("why: %s", snap.Devices[0].Unhealthy)
	}
	if err := n.Check(resource, "dev-0", false); err == nil || !strings.Contains(err.Error(), "has been gone since") {
		t.Errorf("Check: %v", err)
	}
	if err := n.Check(resource, "dev-0", true); err != nil {
		t.Errorf("Check for the container that has it: %v", err)
	}
	gone := n.await("absent", func(s *inventory.Snapshot) bool { return len(s.Resources)+len(s.Devices) == 0 && len(s.Problems) == 1 })
	if p := gone.Problems[0]; p.Resource != resource || !strings.Contains(p.Message, "has been gone since") || !strings.Contains(p.Message, "; its devices were forgotten at ") {
		t.Errorf("what is told of it: %+v", p)
	}
	if err := n.Check(resource, "dev-0", true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Check: %v", err)
	}
	n.plug(emulator.Config{Devices: emulator.Devices(4, 0)})
	if snap := n.awaitHealthy(resource, 4); len(snap.Problems) != 0 {
		t.Errorf("problems of a plugin that is back: %v", snap.Problems)
	}
}

// wantNamedOnce: whoever is told of the problem with a plugin, or of a device of it, with where the device is from, reads the plugin's socket
// once. Of a plugin that is gone both say the same, so that they need not be told side by side.
func wantNamedOnce(t *testing.T, snap *inventory.Snapshot, socket string) {
	t.Helper()
	if len(snap.Problems) != 1 || strings.Count(snap.Problems[0].String(), socket) != 1 {
		t.Fatalf("problems: %v", snap.Problems)
	}
	for _, d := range snap.Devices {
		if told := d.Origin + ": " + d.Unhealthy; told != snap.Problems[0].String() {
			t.Errorf("device %s: %q, and the problem is %q", d.Name, told, snap.Problems[0])
		}
	}
}

// What is in the way of a plugin that does not serve is told without its socket's path, which the problem begins with.
func TestSocketThatNobodyServes(t *testing.T) {
	for name, tc := range map[string]struct {
		make func(t *testing.T, path string)
		want string
	}{
		"none": {func(*testing.T, string) {}, "cannot be used yet: its socket is not there"},
		"dead": {deadSocket, "cannot be used yet: nobody serves its socket"},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t)
			path := filepath.Join(n.cfg.Dir, "x.sock")
			tc.make(t, path)
			if err := n.register(&v1beta1.RegisterRequest{Version: "v1beta1", Endpoint: "x.sock", ResourceName: resource}); err != nil {
				t.Fatal(err)
			}
			wantNamedOnce(t, n.awaitProblem(tc.want), path)
		})
	}
}

// What came after the end of a plugin is told with it: who left first, and what is in the way now.
func TestWhatIsInTheWayOfAPluginThatIsGone(t *testing.T) {
	n := start(t)
	p, kill := n.plug(emulator.Config{Devices: emulator.Devices(2, 0)})
	n.awaitHealthy(resource, 2)
	kill()
	n.awaitHealthy(resource, 0)
	other, _ := n.plug(emulator.Config{Resource: "example.com/other", NoRegistration: true})
	snap := n.awaitProblem("crashed; another program serves its socket now, which has not registered")
	if other.Socket() != p.Socket() {
		t.Fatal(other.Socket())
	}
	wantNamedOnce(t, snap, p.Socket())
}

// A plugin that registers and never serves is forgotten as well.
func TestPluginThatNeverServesIsForgotten(t *testing.T) {
	n := start(t, func(s *Source) { s.cfg.Grace = 100 * time.Millisecond })
	if err := n.register(&v1beta1.RegisterRequest{Version: "v1beta1", Endpoint: "never.sock", ResourceName: resource}); err != nil {
		t.Fatal(err)
	}
	n.awaitProblem("cannot be used yet")
	n.await("nothing", func(s *inventory.Snapshot) bool { return len(s.Resources)+len(s.Problems) == 0 })
}

// One that is there and refuses is tried for as long as it is there; its resource is absent meanwhile.
func TestPluginThatRefusesIsTriedBeyondTheGracePeriod(t *testing.T) {
	n := start(t, func(s *Source) { s.cfg.Grace = 100 * time.Millisecond })
	mended := make(chan struct{})
	n.plug(emulator.Config{Devices: emulator.Devices(1, 0), Hooks: emulator.Hooks{Options: func(context.Context) (*v1beta1.DevicePluginOptions, error) {
		select {
		case <-mended:
			return &v1beta1.DevicePluginOptions{}, nil
		default:
			return nil, errors.New("no driver yet")
		}
	}}})
	n.await("absent, with a problem", func(s *inventory.Snapshot) bool { return len(s.Resources) == 0 && len(s.Problems) == 1 })
	close(mended)
	n.awaitHealthy(resource, 1)
}

// A plugin that was given up and registers again has a grace period again: it may serve only after that.
func TestRegistrationRenewsTheGracePeriod(t *testing.T) {
	n := start(t, func(s *Source) { s.cfg.Grace = time.Hour })
	req := &v1beta1.RegisterRequest{Version: "v1beta1", Endpoint: "emulator.sock", ResourceName: resource}
	if err := n.register(req); err != nil {
		t.Fatal(err)
	}
	n.Source.mu.Lock()
	waiting := n.plugins[resource].next
	waiting.reached = true // it answers, and refuses
	n.Source.mu.Unlock()
	n.expire(waiting)
	if err := n.register(req); err != nil {
		t.Fatal(err)
	}
	n.awaitProblem("cannot be used yet")
	n.plug(emulator.Config{Devices: emulator.Devices(1, 0), NoRegistration: true})
	n.awaitHealthy(resource, 1)
}

// The stream alone has ended: the plugin serves the same socket, and its devices are well again.
func TestStreamIsOpenedAgain(t *testing.T) {
	n := start(t)
	p, _ := n.plug(emulator.Config{Devices: emulator.Devices(2, 0)})
	n.awaitHealthy(resource, 2)
	for i := int64(2); i < 5; i++ {
		p.CutStreams()
		eventually(t, "another stream", func() bool { return p.Streams.Load() == i })
		n.awaitHealthy(resource, 2)
	}
}

// What comes to the socket of a plugin that has gone may be a plugin of something else.
func TestOtherProgramAtTheSocketHasToRegister(t *testing.T) {
	n := start(t)
	_, kill := n.plug(emulator.Config{Devices: emulator.Devices(2, 0)})
	n.awaitHealthy(resource, 2)
	kill()
	n.awaitHealthy(resource, 0)
	other, _ := n.plug(emulator.Config{Resource: "example.com/other", Devices: emulator.Devices(7, 0), NoRegistration: true})
	n.awaitProblem("another program serves its socket now, which has not registered")
	if other.Streams.Load() > 0 {
		t.Error("the other program's devices were asked for")
	}
	if err := other.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	snap := n.awaitHealthy("example.com/other", 7)
	if healthy(snap, resource) != 0 {
		t.Errorf("devices: %+v", snap.Of(resource))
	}
}

func TestSnapshotIsNeverChanged(t *testing.T) {
	n := start(t)
	p, kill := n.plug(emulator.Config{Devices: emulator.Devices(2, 0)})
	old := n.awaitHealthy(resource, 2)
	p.SetHealth("dev-0", "Unhealthy")
	n.awaitHealthy(resource, 1)
	kill()
	n.awaitHealthy(resource, 0)
	if healthy(old, resource) != 2 || len(old.Problems) > 0 {
		t.Errorf("the old snapshot has become %+v", old)
	}
}

func TestABurstIsOneChange(t *testing.T) {
	n := start(t, func(s *Source) { s.pace.gather, s.pace.spacing = 200*time.Millisecond, 200*time.Millisecond })
	p, _ := n.plug(emulator.Config{Devices: emulator.Devices(1, 0)})
	n.awaitHealthy(resource, 1)
	before, _ := n.count()
	for i := 1; i <= 100; i++ {
		p.SetHealth(fmt.Sprintf("dev-%d", i), "Healthy")
	}
	n.awaitHealthy(resource, 101)
	if after, _ := n.count(); after-before > 4 {
		t.Errorf("%d changes were told for a burst", after-before)
	}
}

// The last word counts, however many were before it, and other plugins are heard all the while.
func TestPluginThatFloods(t *testing.T) {
	n := start(t)
	p, _ := n.plug(emulator.Config{Devices: emulator.Devices(2000, 2)})
	quiet, _ := n.plug(emulator.Config{Resource: "example.com/quiet", Endpoint: "quiet.sock", Devices: emulator.Devices(1, 0)})
	n.awaitHealthy(resource, 2000)
	n.awaitHealthy("example.com/quiet", 1)
	before := runtime.NumGoroutine()
	began := time.Now()
	first, _ := n.count()
	const updates = 300
	for i := range updates {
		p.SetHealth("dev-0", []string{"Unhealthy", "Healthy"}[i%2])
		if i == updates/2 {
			quiet.SetHealth("dev-0", "Unhealthy")
			n.awaitHealthy("example.com/quiet", 0)
		}
		if more := runtime.NumGoroutine() - before; more > 50 {
			t.Fatalf("%d goroutines more", more)
		}
	}
	p.SetHealth("last", "Healthy")
	n.awaitHealthy(resource, 2001)
	last, _ := n.count()
	if most := int(time.Since(began)/n.pace.spacing) + 3; last-first > most {
		t.Errorf("%d changes were told, want %d at most", last-first, most)
	}
}

func TestServerThatSendsGarbage(t *testing.T) {
	n := start(t)
	l, err := net.Listen("unix", filepath.Join(n.cfg.Dir, "garbage.sock"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			fmt.Fprint(conn, strings.Repeat("garbage\r\n", 1000))
			conn.Close()
		}
	}()
	defer func() { l.Close(); <-done }()
	if err := n.register(&v1beta1.RegisterRequest{Version: "v1beta1", Endpoint: "garbage.sock", ResourceName: resource}); err != nil {
		t.Fatal(err)
	}
	n.awaitProblem("cannot be used yet: GetDevicePluginOptions: ")
	n.plug(emulator.Config{Resource: "example.com/other", Devices: emulator.Devices(1, 0)})
	n.awaitHealthy("example.com/other", 1)
}

// badStream is a plugin with a device whose ID is no UTF-8.
type badStream struct {
	v1beta1.UnimplementedDevicePluginServer
	streams chan struct{}
}

func (b badStream) ListAndWatch(_ *v1beta1.Empty, stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	select {
	case b.streams <- struct{}{}:
	default:
	}
	return stream.SendMsg(wrapperspb.Bytes([]byte{0x0a, 0x01, 0xff})) // encoded as devices[0].ID is
}

// A list that cannot be read ends the stream, and what it was part of; the plugin is tried again, at a pace.
func TestListThatCannotBeRead(t *testing.T) {
	n := start(t)
	l, err := net.Listen("unix", filepath.Join(n.cfg.Dir, "bad.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	bad := badStream{streams: make(chan struct{}, 3)}
	v1beta1.RegisterDevicePluginServer(server, bad)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	defer func() { server.Stop(); <-done }()
	if err := n.register(&v1beta1.RegisterRequest{Version: "v1beta1", Endpoint: "bad.sock", ResourceName: resource}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		select {
		case <-bad.streams:
		case <-time.After(deadline):
			t.Fatal("it is not tried again")
		}
	}
	n.awaitProblem("bad.sock: the plugin has registered example.com/widget and cannot be used yet: ListAndWatch: ")
}

func TestPluginThatTellsNothing(t *testing.T) {
	n := start(t)
	p, _ := n.plug(emulator.Config{Devices: emulator.Devices(1, 0)})
	n.awaitHealthy(resource, 1)
	p.SetHealth("dev-0", "")
	n.await("0 of it", func(s *inventory.Snapshot) bool { return len(s.Resources) == 1 && len(s.Devices) == 0 })
	if err := n.Check(resource, "dev-0", false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Check: %v", err)
	}
	if err := n.Check("example.com/none", "dev-0", false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Check: %v", err)
	}
}
