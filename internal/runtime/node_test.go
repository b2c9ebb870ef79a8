package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/executor/client"
	"monopod.dev/monopod/internal/executor/launch"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/image"
	"monopod.dev/monopod/internal/network/bridge"
	"monopod.dev/monopod/internal/network/podnet"
	"monopod.dev/monopod/internal/runtime"
	"monopod.dev/monopod/internal/state"
	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

const busybox = "docker.io/library/busybox:latest"

// What all tests share: the executor's binary and an archive with the image busybox.
var executorBinary, busyboxArchive string

func TestMain(m *testing.M) {
	harness.ServeOutsider()
	if place := os.Getenv(childEnv); place != "" {
		serveChild(place)
	}
	code, err := func() (int, error) {
		dir, err := os.MkdirTemp("/tmp", "mprt-bin")
		if err != nil {
			return 1, err
		}
		defer os.RemoveAll(dir)
		if executorBinary, err = harness.BuildExecutor(dir); err != nil {
			return 1, err
		}
		img, err := images.Busybox(busybox)
		if err != nil {
			return 1, err
		}
		busyboxArchive = filepath.Join(dir, "busybox.tar")
		if err := images.WriteArchive(busyboxArchive, img); err != nil {
			return 1, err
		}
		code := m.Run()
		if err := endShared(); err != nil {
			return 1, err
		}
		if err := goleak.Find(
			// The clients': one ends with its next ping, the other a second after its connection could not be closed well.
			goleak.IgnoreAnyFunction("github.com/moby/spdystream.(*Connection).shutdown"),
			goleak.IgnoreAnyFunction("k8s.io/client-go/tools/remotecommand.(*heartbeat).start"),
			// The one connection to systemd's bus, which lives as long as the process.
			goleak.IgnoreAnyFunction("github.com/godbus/dbus/v5.(*Conn).inWorker"), goleak.IgnoreAnyFunction("github.com/godbus/dbus/v5.newConn.func1"),
			goleak.IgnoreAnyFunction("github.com/coreos/go-systemd/v22/dbus.(*Conn).dispatch.func1")); err != nil && code == 0 {
			return 1, err
		}
		return code, nil
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// patience bounds what a test waits for.
func patience() time.Duration { return time.Minute * harness.SlowFactor() }

var instances atomic.Int32

// node is a runtime with all that it stands on, all real.
type node struct {
	testing.TB
	dir, bridgeName, cgroupRoot string
	cidr, cidr6                 netip.Prefix // cidr6: none, unless a test sets it
	ctx                         context.Context
	log                         *lockedBuffer // of the last server
	abandonAfter, killBound     time.Duration // of runtime.Config
	afterwards                  func()        // called when all of the node is removed; nil: nothing

	change func(*runtime.Config) // nil: none

	db       *state.DB
	images   *image.Store
	bridge   *bridge.Bridge
	executor *client.Client
	server   *runtime.Server
	end      context.CancelFunc
	ended    chan error
	conn     *grpc.ClientConn
	creating atomic.Int64 // nanoseconds in the executor's Create
	running  atomic.Int64 // and in its Exec
	held     func(error)  // is told how the executor's Hold has ended, before the runtime is; nil: nobody
	rt       cri.RuntimeServiceClient
	img      cri.ImageServiceClient
}

// newNode starts a node with the image busybox in it. After the test nothing of it is left.
func newNode(t testing.TB) *node {
	t.Helper()
	return startNode(prepareNode(t))
}

// startNode starts a node that is prepared, with the image.
func startNode(n *node) *node {
	n.Helper()
	n.start()
	n.loadBusybox()
	return n
}

func (n *node) loadBusybox() {
	n.Helper()
	f, err := os.Open(busyboxArchive)
	n.check(err)
	defer f.Close()
	_, err = n.images.Load(n.ctx, image.LoadRequest{Archive: f})
	n.check(err)
}

func prepareNode(t testing.TB) *node {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "mprt")
	if err != nil {
		t.Fatal(err)
	}
	i := int(instances.Add(1))
	n := &node{TB: t, dir: dir, bridgeName: fmt.Sprintf("mr%d-%d", os.Getpid()%1000000, i), cgroupRoot: "/" + filepath.Base(dir)}
	n.cidr = harness.PodRange(t)
	harness.CheckHost(t, harness.Place{Dirs: []string{dir}, CgroupRoot: n.cgroupRoot, Bridge: n.bridgeName})
	ctx, cancel := context.WithTimeout(context.Background(), 6*patience())
	n.ctx = ctx
	t.Cleanup(func() {
		defer cancel()
		// However much of its time the test has used, there is enough to clean up.
		var done context.CancelFunc
		n.ctx, done = context.WithTimeout(context.Background(), 2*patience())
		defer done()
		executorLog := filepath.Join(dir, "run", "executor", "log")
		ofExecutor, _ := os.ReadFile(executorLog)
		n.removeAll()
		if n.afterwards != nil {
			n.afterwards()
		}
		if t.Failed() {
			if raw, err := os.ReadFile(executorLog); err == nil {
				ofExecutor = raw
			}
			t.Logf("log of the executor:\n%s\nlog of the last server:\n%s", ofExecutor, n.log)
		}
		if err := tree.Remove(context.Background(), dir); err != nil { // never what a failed test has left mounted
			t.Error(err)
		}
	})
	return n
}

func (n *node) check(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

// start starts everything but an executor that runs.
func (n *node) start() {
	n.Helper()
	n.startUntil(nil)
}

// startUntil calls before, if any, when the state is open and before the server looks at it.
func (n *node) startUntil(before func()) {
	n.Helper()
	var err error
	n.log = &lockedBuffer{}
	log := slog.New(slog.NewTextHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	n.db, _, err = state.Open(state.Config{Path: filepath.Join(n.dir, "data", "state", "runtime.db"), SetAside: true})
	n.check(err)
	_, err = launch.Ensure(n.ctx, launch.Config{Binary: executorBinary, Socket: filepath.Join(n.dir, "x.sock"), Dir: filepath.Join(n.dir, "run", "executor"),
		CgroupPath: filepath.Join(n.cgroupRoot, "executor")})
	n.check(err)
	n.executor = client.New(client.Config{Socket: filepath.Join(n.dir, "x.sock"), Log: log, Patience: 10 * time.Second * harness.SlowFactor()})
	n.images, err = image.Open(n.ctx, image.Config{Root: filepath.Join(n.dir, "data", "images"), RegistryConfigDir: filepath.Join(n.dir, "hosts"), Log: log})
	n.check(err)
	n.bridge, err = bridge.New(n.ctx, bridge.Config{DB: n.db, Network: podnet.Network{Name: n.bridgeName, Ranges: n.podCIDRs()}, Log: log})
	n.check(err)
	n.check(n.bridge.Start(n.ctx))
	if before != nil {
		before()
	}
	cfg := runtime.Config{Socket: filepath.Join(n.dir, "cri.sock"), DataDir: filepath.Join(n.dir, "data"), RunDir: filepath.Join(n.dir, "run"),
		CgroupRoot: n.cgroupRoot, CDISpecDirs: []string{filepath.Join(n.dir, "cdi"), filepath.Join(n.dir, "cdi2")}, Images: n.images, Network: n.bridge, Executor: &timedExecutor{Client: n.executor, spent: &n.creating, running: &n.running, held: func(err error) {
			if n.held != nil {
				n.held(err)
			}
		}},
		DB: n.db, Version: "v0.1.0", AbandonAfter: n.abandonAfter, KillBound: n.killBound, Log: log}
	if n.change != nil {
		n.change(&cfg)
	}
	n.server = nil
	server, err := runtime.New(n.ctx, cfg)
	n.check(err)
	n.server = server
	ctx, end := context.WithCancel(n.ctx)
	n.end, n.ended = end, make(chan error, 1)
	go func() { n.ended <- n.server.Serve(ctx) }()
	select {
	case <-n.server.Ready():
	case err := <-n.ended:
		n.Fatalf("the server ended: %v", err)
	}
	n.dial()
}

// dial connects the node's clients.
func (n *node) dial() {
	n.Helper()
	var err error
	n.conn, err = grpc.NewClient("unix://"+filepath.Join(n.dir, "cri.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	n.check(err)
	n.rt, n.img = cri.NewRuntimeServiceClient(n.conn), cri.NewImageServiceClient(n.conn)
}

// timedExecutor adds up the time that the executor's Create and Exec take, and tells how Hold has ended.
type timedExecutor struct {
	*client.Client
	spent, running *atomic.Int64
	held           func(error)
}

func (e *timedExecutor) Hold(ctx context.Context, req protocol.AttachRequest, files ...*os.File) (func() error, error) {
	wait, err := e.Client.Hold(ctx, req, files...)
	e.held(err)
	return wait, err
}

func (e *timedExecutor) Exec(ctx context.Context, req protocol.ExecRequest, files ...*os.File) (protocol.ExecResponse, error) {
	begin := time.Now()
	defer func() { e.running.Add(int64(time.Since(begin))) }()
	return e.Client.Exec(ctx, req, files...)
}

func (e *timedExecutor) Create(ctx context.Context, req protocol.CreateRequest) (protocol.CreateResponse, error) {
	begin := time.Now()
	defer func() { e.spent.Add(int64(time.Since(begin))) }()
	return e.Client.Create(ctx, req)
}

func (n *node) podCIDRs() []netip.Prefix {
	if n.cidr6.IsValid() {
		return []netip.Prefix{n.cidr, n.cidr6}
	}
	return []netip.Prefix{n.cidr}
}

// stop ends the server and what it stands on; the executor and the containers go on.
func (n *node) stop() {
	n.Helper()
	n.stopServing()
	n.closeAll()
}

func (n *node) stopServing() {
	n.Helper()
	if n.end == nil {
		return
	}
	n.end()
	if err := <-n.ended; err != nil {
		n.Errorf("the server ended with %v", err)
	}
	n.end = nil
	n.conn.Close()
}

func (n *node) closeAll() {
	n.Helper()
	n.bridge.Close()
	if err := errors.Join(n.executor.Close(), n.images.Close(), n.db.Close()); err != nil {
		n.Error(err)
	}
	n.db = nil
}

func (n *node) restart() {
	n.Helper()
	n.stop()
	n.start()
}

// removeAll removes all that the node has on the host.
func (n *node) removeAll() {
	n.Helper()
	if n.db == nil {
		n.start()
	}
	n.stopServing()
	if n.bridge == nil { // the test has failed before all of it was there
		n.removeHalf()
		return
	}
	var errs []error
	if n.server != nil { // else its start has failed, and the test with it
		errs = append(errs, n.server.RemoveAll(n.ctx))
	}
	errs = append(errs, n.executor.Shutdown(n.ctx, protocol.ShutdownRequest{Kill: true}), n.bridge.Remove(n.ctx))
	host, err := cgroup.Detect()
	if err == nil {
		err = host.RemoveTree(n.cgroupRoot)
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		n.Error(err)
	}
	n.closeAll()
}

// removeHalf removes what there is of a node whose first start has failed.
func (n *node) removeHalf() {
	n.Helper()
	var errs []error
	if n.executor != nil {
		errs = append(errs, n.executor.Shutdown(n.ctx, protocol.ShutdownRequest{Kill: true}), n.executor.Close())
	}
	if n.images != nil {
		errs = append(errs, n.images.Close())
	}
	host, err := cgroup.Detect()
	if err == nil {
		err = host.RemoveTree(n.cgroupRoot)
	}
	if err := errors.Join(append(errs, err, n.db.Close())...); err != nil {
		n.Error(err)
	}
}

// sandboxConfig is that of an ordinary pod.
func (n *node) sandboxConfig(name string) *cri.PodSandboxConfig {
	return &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name}, Hostname: name,
		LogDirectory: filepath.Join(n.dir, "logs", name),
		Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{
			NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}}},
	}
}

// shell is the configuration of a container that runs a script.
func shell(name, script string) *cri.ContainerConfig {
	return &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: name}, Image: &cri.ImageSpec{Image: busybox}, Command: []string{"sh", "-c", script}, LogPath: name + "/0.log",
		Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}}},
	}
}

// sleeper ends at once when it is asked to.
const sleeper = "trap 'exit 0' TERM; sleep 3600 & wait"

func (n *node) run(name string) string {
	n.Helper()
	resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: n.sandboxConfig(name)})
	n.check(err)
	return resp.GetPodSandboxId()
}

func (n *node) tryCreate(sandbox string, cfg *cri.ContainerConfig) (string, error) {
	resp, err := n.rt.CreateContainer(n.ctx, &cri.CreateContainerRequest{PodSandboxId: sandbox, Config: cfg})
	return resp.GetContainerId(), err
}

func (n *node) create(sandbox string, cfg *cri.ContainerConfig) string {
	n.Helper()
	id, err := n.tryCreate(sandbox, cfg)
	n.check(err)
	return id
}

func (n *node) tryStart(id string) error {
	_, err := n.rt.StartContainer(n.ctx, &cri.StartContainerRequest{ContainerId: id})
	return err
}

// launch starts a container. One that is asked to end by SIGTERM has its handler when launch returns: before, the kernel would drop the
// signal, as it does for a first process without one.
func (n *node) launch(sandbox string, cfg *cri.ContainerConfig) string {
	n.Helper()
	id := n.create(sandbox, cfg)
	n.check(n.tryStart(id))
	if slices.Contains(cfg.Command, sleeper) {
		n.eventually("the handler of SIGTERM", func() bool { return n.catches(id, syscall.SIGTERM) })
	}
	return id
}

// catches says whether a container's first process has a handler for a signal, or has ended.
func (n *node) catches(id string, sig syscall.Signal) bool {
	n.Helper()
	return n.treats(id, "SigCgt", sig)
}

// ignores says whether a container's first process ignores a signal, or has ended.
func (n *node) ignores(id string, sig syscall.Signal) bool {
	n.Helper()
	return n.treats(id, "SigIgn", sig)
}

// treats asks for a mask of signals of a container's first process (proc_pid_status(5)).
func (n *node) treats(id, mask string, sig syscall.Signal) bool {
	n.Helper()
	states, err := n.executor.List(n.ctx)
	n.check(err)
	i := slices.IndexFunc(states, func(s protocol.ContainerState) bool { return string(s.ID) == id })
	if i < 0 {
		return true
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", states[i].PID))
	if err != nil {
		return true
	}
	_, value, _ := strings.Cut(string(raw), "\n"+mask+":\t")
	value, _, _ = strings.Cut(value, "\n")
	signals, err := strconv.ParseUint(value, 16, 64)
	n.check(err)
	return signals&(1<<(sig-1)) != 0
}

func (n *node) tryStop(id string, grace int64) error {
	_, err := n.rt.StopContainer(n.ctx, &cri.StopContainerRequest{ContainerId: id, Timeout: grace})
	return err
}

func (n *node) remove(id string) {
	n.Helper()
	_, err := n.rt.RemoveContainer(n.ctx, &cri.RemoveContainerRequest{ContainerId: id})
	n.check(err)
}

func (n *node) removeSandbox(id string) {
	n.Helper()
	_, err := n.rt.RemovePodSandbox(n.ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id})
	n.check(err)
}

func (n *node) status(id string) *cri.ContainerStatus {
	n.Helper()
	resp, err := n.rt.ContainerStatus(n.ctx, &cri.ContainerStatusRequest{ContainerId: id})
	n.check(err)
	return resp.GetStatus()
}

func (n *node) sandboxStatus(id string) *cri.PodSandboxStatus {
	n.Helper()
	resp, err := n.rt.PodSandboxStatus(n.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id})
	n.check(err)
	return resp.GetStatus()
}

// wait waits for the end of a container.
func (n *node) wait(id string) *cri.ContainerStatus {
	n.Helper()
	n.eventually("container "+id+" to end", func() bool { return n.status(id).GetState() == cri.ContainerState_CONTAINER_EXITED })
	return n.status(id)
}

func (n *node) eventually(what string, ok func() bool) {
	n.Helper()
	for deadline := time.Now().Add(patience()); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			n.Fatalf("waited in vain for %s", what)
		}
	}
}

// exec runs a command in a container and returns what it prints.
func (n *node) exec(id string, cmd ...string) string {
	n.Helper()
	resp, err := n.rt.ExecSync(n.ctx, &cri.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: 10})
	n.check(err)
	if resp.GetExitCode() != 0 {
		n.Fatalf("%q ended with %d: %s%s", cmd, resp.GetExitCode(), resp.GetStdout(), resp.GetStderr())
	}
	return strings.TrimSpace(string(resp.GetStdout()))
}

// output runs a container to its end and returns what its log holds, without times.
func (n *node) output(sandbox string, cfg *cri.ContainerConfig) string {
	n.Helper()
	id := n.launch(sandbox, cfg)
	st := n.wait(id)
	var out strings.Builder
	for _, line := range n.logLines(st.GetLogPath()) {
		if f := strings.SplitN(line, " ", 4); len(f) == 4 {
			out.WriteString(f[3] + "\n")
		}
	}
	n.remove(id)
	n.check(os.Remove(st.GetLogPath())) // it belongs to the client
	return strings.TrimSpace(out.String())
}

func (n *node) logLines(path string) []string {
	n.Helper()
	raw, err := os.ReadFile(path)
	n.check(err)
	return strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n")
}

// wantCode fails the test unless the error has the code and names all of the words.
func wantCode(t testing.TB, err error, code codes.Code, words ...string) {
	t.Helper()
	if status.Code(err) != code {
		t.Errorf("error %v, want the code %s", err, code)
		return
	}
	if err == nil {
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not name %q", err, w)
		}
	}
}
