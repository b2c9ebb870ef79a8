package devices

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/examples/deviceplugin/emulator"
	"monopod.dev/monopod/internal/devices/cdi"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/plugin"
)

// The scenarios of Kubernetes' node tests that need a plugin and a manager, but no pods; docs/reference/UPSTREAM-SCENARIOS.md says which test is whose.

// scenario is where a node is: its plugins' folder and its ledger outlive the process.
type scenario struct {
	*testing.T
	dir   string
	grace time.Duration
}

func newScenario(t *testing.T) *scenario {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	dir, err := os.MkdirTemp("", "sc") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Mkdir(filepath.Join(dir, "p"), 0o750); err != nil { // plugins that come before the node need it
		t.Fatal(err)
	}
	return &scenario{T: t, dir: dir, grace: time.Minute}
}

// life is one process of the node.
type life struct {
	*Manager
	s     *scenario
	ticks <-chan struct{}
	end   func()
}

// start starts the process, in which these pods live.
func (s *scenario) start(boot string, pods ...string) *life {
	s.Helper()
	db := open(s.T, filepath.Join(s.dir, "agent.db"))
	m, err := New(Config{DB: db, Log: quiet(), Boot: boot, CDI: cdi.Config{Dirs: []string{filepath.Join(s.dir, "cdi")}},
		Plugins: plugin.Config{Dir: filepath.Join(s.dir, "p"), Grace: s.grace}})
	if err != nil {
		s.Fatal(err)
	}
	live := map[string]bool{}
	for _, uid := range pods {
		live[uid] = true
	}
	if err := m.Reconcile(s.Context(), live, nil); err != nil {
		s.Fatal(err)
	}
	ticks, unsubscribe := m.Watch()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	l := &life{Manager: m, s: s, ticks: ticks}
	l.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.Error(err)
		}
		unsubscribe()
		if err := db.Close(); err != nil {
			s.Error(err)
		}
	})
	s.Cleanup(l.end)
	// A plugin that begins while kubelet.sock comes finds it new, and begins anew in the middle of the test.
	s.awaitRegistrar()
	return l
}

// plug runs a plugin until the test ends, or what is returned is called.
func (s *scenario) plug(cfg emulator.Config) (p *emulator.Plugin, stop func()) {
	s.Helper()
	cfg.Dir = filepath.Join(s.dir, "p")
	if cfg.Resource == "" {
		cfg.Resource = gadget
	}
	p = emulator.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.Error(err)
		}
	})
	s.Cleanup(stop)
	return p, stop
}

// await waits until something is so; each change of the devices wakes it.
func (l *life) await(what string, is func() bool) {
	l.s.Helper()
	late := time.After(time.Minute)
	for !is() {
		select {
		case <-l.ticks:
		case <-late:
			l.s.Fatalf("%s: never; resources %v, problems %v", what, l.Resources(), l.Problems())
		}
	}
}

// awaitFigures waits for what the node's status says of the gadgets.
func (l *life) awaitFigures(capacity, allocatable int64) {
	l.s.Helper()
	want := inventory.Quantity{Capacity: capacity, Allocatable: allocatable}
	l.await("capacity and allocatable", func() bool { q, ok := l.Resources()[gadget]; return ok && q == want })
}

func (l *life) awaitAbsent() {
	l.s.Helper()
	l.await("the resource is absent", func() bool { _, ok := l.Resources()[gadget]; return !ok })
}

func (l *life) awaitProblem(words string) {
	l.s.Helper()
	l.await(words, func() bool {
		for _, p := range l.Problems() {
			if strings.Contains(p.String(), words) {
				return true
			}
		}
		return false
	})
}

// has are the devices of a pod, by its record.
func (l *life) has(uid string) string {
	var names []string
	for _, g := range l.GrantsOf(uid) {
		for _, d := range g.Devices {
			names = append(names, d.Name)
		}
	}
	return strings.Join(names, " ")
}

// A plugin whose GetDevicePluginOptions fails offers no device and is not asked for any; pods wait for it. Kubelets fail the registration and
// never come back to the plugin; here it is asked again.
func TestAPluginIsNotUsedWhenGetDevicePluginOptionsFails(t *testing.T) {
	s := newScenario(t)
	l := s.start("one")
	var mended atomic.Bool
	p, _ := s.plug(emulator.Config{Devices: emulator.Devices(1, 0), Hooks: emulator.Hooks{Options: func(context.Context) (*v1beta1.DevicePluginOptions, error) {
		if mended.Load() {
			return &v1beta1.DevicePluginOptions{}, nil
		}
		return nil, errors.New("no driver yet")
	}}})
	l.awaitProblem("GetDevicePluginOptions: no driver yet")
	if q, ok := l.Resources()[gadget]; !ok || q != (inventory.Quantity{}) || p.Streams.Load() != 0 {
		t.Errorf("the node has %+v (%v), after %d calls of ListAndWatch", q, ok, p.Streams.Load())
	}
	req := podOf("a", asksFor("c", gadget, 1))
	notReady(t, l.Manager, req, "no driver yet")
	mended.Store(true)
	l.awaitFigures(1, 1)
	admit(t, l.Manager, req)
}

// Allocatable is what is healthy, capacity is what there is.
func TestAllocatableIsTheNumberOfHealthyDevices(t *testing.T) {
	s := newScenario(t)
	l := s.start("one")
	p, _ := s.plug(emulator.Config{Devices: emulator.Devices(4, 0)})
	l.awaitFigures(4, 4)
	for _, step := range []struct {
		device, health string
		allocatable    int64
	}{
		{"dev-3", "Unhealthy", 3}, {"dev-3", "Healthy", 4}, {"dev-1", "Unhealthy", 3}, {"dev-3", "Unhealthy", 2}, {"dev-3", "Healthy", 3}, {"dev-1", "Healthy", 4},
	} {
		p.SetHealth(step.device, step.health)
		l.awaitFigures(4, step.allocatable)
	}
	p.SetDevices(emulator.Devices(1, 0))
	l.awaitFigures(1, 1)
	p.SetHealth("dev-0", "Unhealthy")
	l.awaitFigures(1, 0)
	p.SetHealth("dev-0", "Healthy")
	l.awaitFigures(1, 1)
}

// A device that somebody has counts as any other: neither that, nor its falling ill while it is used, nor its being given back changes more
// than its health does.
func TestADeviceInUseThatFallsIllKeepsItsCapacity(t *testing.T) {
	s := newScenario(t)
	l := s.start("one")
	p, _ := s.plug(emulator.Config{Devices: emulator.Devices(1, 0)})
	l.awaitFigures(1, 1)
	req := podOf("a", asksFor("c", gadget, 1))
	admit(t, l.Manager, req)
	l.awaitFigures(1, 1)
	p.SetHealth("dev-0", "Unhealthy")
	l.awaitFigures(1, 0)
	if g := l.GrantsOf("a"); len(g) != 1 || g[0].Devices[0].Name != "dev-0" || g[0].Devices[0].Health != Unhealthy {
		t.Errorf("grants %+v", g)
	}
	admit(t, l.Manager, req)
	if err := l.Release(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	l.awaitFigures(1, 0)
	notReady(t, l.Manager, podOf("b", asksFor("c", gadget, 1)), "1 wanted, 0 free (of 1, 0 in use, 1 unfit)")
}

// listless is a plugin whose ListAndWatch fails at once, or, with devices, after its first list.
type listless struct {
	v1beta1.UnimplementedDevicePluginServer
	devices []*v1beta1.Device
	fail    chan struct{} // closed when it is to fail
	calls   atomic.Int64
	mended  atomic.Bool
}

func (p *listless) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{}, nil
}

func (p *listless) ListAndWatch(_ *v1beta1.Empty, stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	call := p.calls.Add(1)
	if p.mended.Load() || call == 1 && p.devices != nil {
		if err := stream.Send(&v1beta1.ListAndWatchResponse{Devices: p.devices}); err != nil {
			return err
		}
	}
	if p.mended.Load() {
		<-stream.Context().Done()
		return nil
	}
	<-p.fail
	return errors.New("the bus is stuck")
}

// serve serves and registers it.
func (p *listless) serve(s *scenario) {
	s.Helper()
	l, err := net.Listen("unix", filepath.Join(s.dir, "p", "listless.sock"))
	if err != nil {
		s.Fatal(err)
	}
	server := grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(server, p)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }() // it ends with Stop
	s.Cleanup(func() { server.Stop(); <-done })
	registrar := emulator.New(emulator.Config{Dir: filepath.Join(s.dir, "p"), Endpoint: "listless.sock", Resource: gadget})
	if err := registrar.Register(s.Context()); err != nil {
		s.Fatal(err)
	}
}

// awaitRegistrar waits until one can register.
func (s *scenario) awaitRegistrar() {
	s.Helper()
	path := filepath.Join(s.dir, "p", "kubelet.sock")
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := os.Lstat(path); err == nil {
			return
		}
		if time.Now().After(end) {
			s.Fatal("nobody serves " + path)
		}
	}
}

// A plugin whose ListAndWatch fails has nothing that could be granted. Kubelets leave it at that; here it is asked again, so that it gets well
// without a restart.
func TestListAndWatchThatFailsAtOnce(t *testing.T) {
	s := newScenario(t)
	l := s.start("one")
	s.awaitRegistrar()
	p := &listless{fail: make(chan struct{})}
	close(p.fail)
	p.serve(s)
	l.awaitProblem("the bus is stuck")
	l.awaitFigures(0, 0)
	notReady(t, l.Manager, podOf("a", asksFor("c", gadget, 1)), "the bus is stuck")
	p.devices = emulator.Devices(2, 0)
	p.mended.Store(true)
	l.awaitFigures(2, 2)
}

// A plugin whose ListAndWatch fails after it had devices keeps them as capacity, and nothing of them is allocatable; after the grace period
// nothing is left.
func TestListAndWatchThatFailsAfterwards(t *testing.T) {
	s := newScenario(t)
	s.grace = 500 * time.Millisecond
	l := s.start("one")
	s.awaitRegistrar()
	p := &listless{fail: make(chan struct{}), devices: emulator.Devices(2, 0)}
	p.serve(s)
	l.awaitFigures(2, 2)
	close(p.fail)
	l.awaitFigures(2, 0)
	l.awaitAbsent()
}

// A plugin that is stopped leaves capacity without anything allocatable, until the grace period is over.
func TestAPluginThatIsStoppedLeavesNothingAllocatable(t *testing.T) {
	s := newScenario(t)
	s.grace = 500 * time.Millisecond
	l := s.start("one")
	_, stop := s.plug(emulator.Config{Devices: emulator.Devices(2, 0)})
	l.awaitFigures(2, 2)
	stop()
	l.awaitFigures(2, 0)
	l.awaitAbsent()
}

// A plugin that is rolled out beside the one before it is refused as long as that is active, and has the resource once it has gone: its devices
// stay known, those who have some keep them, and who comes meanwhile waits instead of failing. Kubelets let the newer one take over at once.
func TestASecondPluginIsRolledOut(t *testing.T) {
	s := newScenario(t)
	l := s.start("one")
	refused := make(chan error, 16)
	_, stop := s.plug(emulator.Config{Devices: emulator.Devices(3, 0)})
	l.awaitFigures(3, 3)
	admit(t, l.Manager, podOf("a", asksFor("c", gadget, 1)))
	second, _ := s.plug(emulator.Config{Endpoint: "2.sock", Devices: emulator.Devices(3, 0), Hooks: emulator.Hooks{Registered: func(err error) {
		select {
		case refused <- err:
		default:
		}
	}}})
	if err := <-refused; err == nil || !strings.Contains(err.Error(), "which is active") {
		t.Errorf("the second plugin's registration: %v", err)
	}
	l.awaitFigures(3, 3)
	admit(t, l.Manager, podOf("b", asksFor("c", gadget, 1)))
	stop()
	late := podOf("d", asksFor("c", gadget, 1))
	l.await("the second plugin serves the pod", func() bool {
		v, err := l.Admit(t.Context(), late)
		if err != nil || v.Phase == Failed {
			t.Fatalf("%+v, %v", v, err)
		}
		return v.Phase == Admitted
	})
	l.awaitFigures(3, 3)
	if a, b, d := l.has("a"), l.has("b"), l.has("d"); a != "dev-0" || b != "dev-1" || d != "dev-2" || second.Allocations.Load() != 1 {
		t.Errorf("the pods have %q, %q, %q; the second plugin was asked %d times", a, b, d, second.Allocations.Load())
	}
}

// A second plugin that comes to nothing, because it does not answer for itself or goes away again, changes nothing for those who use the first.
func TestASecondPluginThatComesToNothing(t *testing.T) {
	s := newScenario(t)
	l := s.start("one")
	s.plug(emulator.Config{Devices: emulator.Devices(3, 0)})
	l.awaitFigures(3, 3)
	admit(t, l.Manager, podOf("a", asksFor("c", gadget, 1)))
	for _, hooks := range []emulator.Hooks{{}, {Options: func(context.Context) (*v1beta1.DevicePluginOptions, error) { return nil, errors.New("no driver yet") }}} {
		refused := make(chan error, 16)
		hooks.Registered = func(err error) {
			select {
			case refused <- err:
			default:
			}
		}
		_, stop := s.plug(emulator.Config{Endpoint: "2.sock", Devices: emulator.Devices(9, 0), Hooks: hooks})
		if err := <-refused; err == nil {
			t.Error("the second plugin is registered")
		}
		admit(t, l.Manager, podOf("b", asksFor("c", gadget, 1)))
		stop()
		if q := l.Resources()[gadget]; q != (inventory.Quantity{Capacity: 3, Allocatable: 3}) || l.has("a") != "dev-0" || l.has("b") != "dev-1" {
			t.Errorf("the node has %+v, the pods %q and %q", q, l.has("a"), l.has("b"))
		}
	}
	admit(t, l.Manager, podOf("d", asksFor("c", gadget, 1)))
}

// Pods that come before their plugin has registered with a node that has just started wait for it, those that were there before it stopped keep
// their devices, and what is known of the devices afterwards is what was known before. Kubelets reject the first.
func TestPodsBeforeTheirPluginHasRegisteredAgain(t *testing.T) {
	s := newScenario(t)
	l := s.start("one")
	_, stop := s.plug(emulator.Config{Devices: emulator.Devices(2, 2)})
	l.awaitFigures(2, 2)
	before := l.Devices()
	old, late := podOf("a", asksFor("c", gadget, 1)), podOf("b", asksFor("c", gadget, 1))
	admit(t, l.Manager, old)
	stop()
	l.end()

	l = s.start("one", "a") // the process was restarted
	notReady(t, l.Manager, late, "0 free (of 0, 0 in use)", "the plugin of example.com/gadget has not told its devices again since the node was started")
	admit(t, l.Manager, old) // its answer is on record
	if got := l.has("a"); got != "dev-0" {
		t.Errorf("the pod has %q", got)
	}
	l.end()

	l = s.start("two", "a") // the machine was
	notReady(t, l.Manager, old, "has not told its devices again since the node was started")
	notReady(t, l.Manager, late, "has not told its devices again since the node was started")
	if got := l.has("a"); got != "dev-0" || l.GrantsOf("a")[0].Devices[0].Pending {
		t.Errorf("the pod has %+v", l.GrantsOf("a"))
	}
	p, _ := s.plug(emulator.Config{Devices: emulator.Devices(2, 2)})
	l.awaitFigures(2, 2)
	admit(t, l.Manager, old)
	admit(t, l.Manager, late)
	if l.has("a") != "dev-0" || l.has("b") != "dev-1" || p.Allocations.Load() != 2 {
		t.Errorf("the pods have %q and %q after %d allocations", l.has("a"), l.has("b"), p.Allocations.Load())
	}
	for i, d := range l.Devices() {
		if d.Name != before[i].Name || len(d.NUMA) != 1 || d.NUMA[0] != before[i].NUMA[0] {
			t.Errorf("device %+v, before %+v", d, before[i])
		}
	}
}

// What a plugin is still being asked for is not told as something that the pod has, and yet nobody else gets it.
func TestAnAllocationUnderWayIsPending(t *testing.T) {
	s := newScenario(t)
	l := s.start("one")
	begun, answer := make(chan struct{}), make(chan struct{})
	s.plug(emulator.Config{Devices: emulator.Devices(1, 0), Hooks: emulator.Hooks{Allocate: func(ctx context.Context, _ []string) (*v1beta1.AllocateResponse, error) {
		close(begun)
		select {
		case <-answer:
		case <-ctx.Done():
		}
		return &v1beta1.AllocateResponse{ContainerResponses: []*v1beta1.ContainerAllocateResponse{{}}}, ctx.Err()
	}}})
	l.awaitFigures(1, 1)
	admitted := make(chan error, 1)
	go func() {
		v, err := l.Admit(t.Context(), podOf("a", asksFor("c", gadget, 1)))
		if v.Phase != Admitted {
			err = errors.Join(err, errors.New(v.Message))
		}
		admitted <- err
	}()
	<-begun
	if g := l.GrantsOf("a"); len(g) != 1 || !g[0].Devices[0].Pending {
		t.Errorf("grants %+v", g)
	}
	notReady(t, l.Manager, podOf("b", asksFor("c", gadget, 1)), "1 wanted, 0 free (of 1, 1 in use)")
	close(answer)
	if err := <-admitted; err != nil {
		t.Fatal(err)
	}
	if g := l.GrantsOf("a"); len(g) != 1 || g[0].Devices[0].Pending {
		t.Errorf("grants %+v", g)
	}
}
