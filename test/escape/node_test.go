package escape

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

// What all tests share: runc, and the folder of what is built once.
var runcBinary, buildDir string

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "attack" {
		os.Exit(attack(os.Args[1:]))
	}
	code, err := func() (int, error) {
		var err error
		if buildDir, err = os.MkdirTemp("/tmp", "mpesc"); err != nil {
			return 1, err
		}
		defer os.RemoveAll(buildDir)
		if runcBinary, err = harness.BuildRunc(buildDir); err != nil {
			return 1, err
		}
		return m.Run(), nil
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// short asks for a part of the work: so does -short, and a machine that is emulated.
func short() bool { return testing.Short() || harness.SlowFactor() > 1 }

// notShort leaves a test to `make test-escape`.
func notShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("not with -short: see make test-escape")
	}
}

// rounds is how often a race is tried: full times, or a tenth of that.
func rounds(full int) int {
	if short() {
		return max(full/10, 1)
	}
	return full
}

// bound is within what time a call has to end that nothing holds up, on a machine that others use too.
func bound() time.Duration { return 10 * time.Second * harness.SlowFactor() }

// engines are the runtime handlers that each attack is tried on.
var engines = []string{"native", "runc"}

// node is a runtime that is attacked through one of its engines.
type node struct {
	*testing.T
	host   *harness.Node
	rt     cri.RuntimeServiceClient
	ctx    context.Context
	engine string
	names  *int // makes the names of pods unique
}

// onEachEngine starts a node with the images and lets each engine be attacked. Sandboxes and containers that an attack leaves are removed
// before the next one.
func onEachEngine(t *testing.T, hostile []ociarchive.Image, try func(n *node)) {
	t.Helper()
	startNode(t, hostile...).onEachEngine(try)
}

// mostlyNative is onEachEngine; with -short it leaves runc out. It is for attacks that take long and are much the same through each engine.
func mostlyNative(t *testing.T, hostile []ociarchive.Image, try func(n *node)) {
	t.Helper()
	startNode(t, hostile...).on(mainEngines(), try)
}

// mainEngines are engines, with -short but the native one.
func mainEngines() []string {
	if testing.Short() {
		return engines[:1]
	}
	return engines
}

func (n *node) onEachEngine(try func(n *node)) {
	n.Helper()
	n.on(engines, try)
}

// on lets each of these engines be attacked.
func (n *node) on(these []string, try func(n *node)) {
	n.Helper()
	for _, engine := range these {
		n.Run(engine, func(t *testing.T) { n.as(t, engine, try) })
	}
}

func startNode(t *testing.T, hostile ...ociarchive.Image) *node {
	t.Helper()
	return startNodeOf(t, harness.Options{}, hostile...)
}

// startNodeOf starts a runtime with these options beside those that every node has.
func startNodeOf(t *testing.T, o harness.Options, hostile ...ociarchive.Image) *node {
	t.Helper()
	o.Command, o.Args = "runtime", append([]string{"--runtime-handlers", "runc=" + runcBinary}, o.Args...)
	n := &node{T: t, names: new(int), engine: engines[0], host: harness.NewNode(t, o)}
	n.begin(nil, hostile...)
	return n
}

// begin starts a runtime that is prepared, with further arguments, and loads the images.
func (n *node) begin(args []string, hostile ...ociarchive.Image) {
	n.Helper()
	n.host.Start(args...)
	n.load(append(hostile, baseImage(n.T))...)
	conn, err := grpc.NewClient("unix://"+n.host.CRISocket(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	n.check(err)
	n.Cleanup(func() { conn.Close() })
	n.rt = cri.NewRuntimeServiceClient(conn)
}

// as attacks through one engine, and removes all pods afterwards.
func (n *node) as(t *testing.T, engine string, try func(n *node)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute*harness.SlowFactor())
	sub := &node{T: t, host: n.host, rt: n.rt, ctx: ctx, engine: engine, names: n.names}
	t.Cleanup(func() {
		cancel()
		var done context.CancelFunc
		sub.ctx, done = context.WithTimeout(context.Background(), 60*time.Second*harness.SlowFactor())
		defer done()
		sub.removeAll()
	})
	try(sub)
}

func (n *node) removeAll() {
	n.Helper()
	all, err := n.rt.ListPodSandbox(n.ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		n.Error(err)
		return
	}
	for _, sb := range all.GetItems() {
		if _, err := n.rt.RemovePodSandbox(n.ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sb.GetId()}); err != nil {
			n.Error(err)
		}
	}
}

func (n *node) check(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

// load puts images into the node, by one archive.
func (n *node) load(all ...ociarchive.Image) {
	n.Helper()
	path := filepath.Join(n.TempDir(), "images.tar")
	n.check(images.WriteArchive(path, all...))
	n.host.LoadImage(path)
	n.check(os.Remove(path))
}

func (n *node) podConfig() *cri.PodSandboxConfig {
	*n.names++
	name := fmt.Sprintf("p%d", *n.names)
	return &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name}, Hostname: name, LogDirectory: filepath.Join(n.host.Dir, "logs", name),
		Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{
			NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}}},
	}
}

// pod runs a sandbox whose containers are the engine's. change, unless it is nil, changes the configuration first.
func (n *node) pod(change func(*cri.PodSandboxConfig)) *pod {
	n.Helper()
	p, err := n.tryPod(change)
	n.check(err)
	return p
}

func (n *node) tryPod(change func(*cri.PodSandboxConfig)) (*pod, error) {
	cfg := n.podConfig()
	if change != nil {
		change(cfg)
	}
	resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: cfg, RuntimeHandler: n.engine})
	return &pod{node: n, id: resp.GetPodSandboxId(), cfg: cfg}, err
}

type pod struct {
	*node
	id    string
	cfg   *cri.PodSandboxConfig
	count int
}

// command is the configuration of a container of the base image that runs a program.
func command(args ...string) *cri.ContainerConfig {
	return &cri.ContainerConfig{
		Image: &cri.ImageSpec{Image: base}, Command: args,
		Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{
			NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER},
			MaskedPaths:      maskedPaths, ReadonlyPaths: readonlyPaths}},
	}
}

// What kubelets send for an ordinary container.
var (
	maskedPaths = []string{"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats",
		"/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap"}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// shell is the configuration of a container that runs a script.
func shell(script string) *cri.ContainerConfig { return command("sh", "-c", script) }

// sleeper ends at once when it is asked to.
const sleeper = "trap 'exit 0' TERM; sleep 3600 & wait"

// idler does nothing from its first moment on. The sleeper's shell opens /dev/null for what it starts in the background, which may come after the
// attack on it, and ends when it cannot.
const idler = "exec sleep 3600"

// of lets a container run an image instead of the base, with its own command.
func of(image string, cfg *cri.ContainerConfig) *cri.ContainerConfig {
	cfg.Image.Image = image
	return cfg
}

// mounted adds a mount of a host path.
func mounted(cfg *cri.ContainerConfig, host, at string) *cri.ContainerConfig {
	cfg.Mounts = append(cfg.Mounts, &cri.Mount{HostPath: host, ContainerPath: at})
	return cfg
}

// able adds capabilities.
func able(cfg *cri.ContainerConfig, capabilities ...string) *cri.ContainerConfig {
	cfg.Linux.SecurityContext.Capabilities = &cri.Capability{AddCapabilities: capabilities}
	return cfg
}

// container is one that has been created, or was refused with err; then it has no id.
type container struct {
	*pod
	id, log string
	err     error
}

// tryCreate creates a container.
func (p *pod) tryCreate(cfg *cri.ContainerConfig) *container {
	p.count++
	name := fmt.Sprintf("c%d", p.count)
	cfg.Metadata, cfg.LogPath = &cri.ContainerMetadata{Name: name}, name+".log"
	return p.create(cfg)
}

// create creates a container that has a name and a log already.
func (p *pod) create(cfg *cri.ContainerConfig) *container {
	resp, err := p.rt.CreateContainer(p.ctx, &cri.CreateContainerRequest{PodSandboxId: p.id, Config: cfg, SandboxConfig: p.cfg})
	return &container{pod: p, id: resp.GetContainerId(), log: filepath.Join(p.cfg.GetLogDirectory(), cfg.GetLogPath()), err: err}
}

// try creates and starts a container. That it is refused may be right: err tells.
func (p *pod) try(cfg *cri.ContainerConfig) *container {
	c := p.tryCreate(cfg)
	c.start()
	return c
}

// start starts a container that was created.
func (c *container) start() {
	if c.err == nil {
		_, c.err = c.rt.StartContainer(c.ctx, &cri.StartContainerRequest{ContainerId: c.id})
	}
}

// launch starts a container that must start.
func (p *pod) launch(cfg *cri.ContainerConfig) *container {
	p.Helper()
	c := p.try(cfg)
	p.check(c.err)
	return c
}

// output is what a container prints until it ends; "" for one that did not start.
func (p *pod) output(cfg *cri.ContainerConfig) string {
	p.Helper()
	c := p.try(cfg)
	if c.err != nil {
		return ""
	}
	c.wait()
	return c.printed()
}

// wait waits for the container's end.
func (c *container) wait() *cri.ContainerStatus {
	c.Helper()
	var st *cri.ContainerStatus
	harness.Eventually(c, "container "+c.id+" has ended", func() (bool, string) {
		st = c.status()
		return st.GetState() == cri.ContainerState_CONTAINER_EXITED, st.GetState().String()
	})
	return st
}

func (c *container) status() *cri.ContainerStatus {
	c.Helper()
	resp, err := c.rt.ContainerStatus(c.ctx, &cri.ContainerStatusRequest{ContainerId: c.id})
	c.check(err)
	return resp.GetStatus()
}

// printed is what the container has printed so far, both streams together.
func (c *container) printed() string {
	c.Helper()
	raw, err := os.ReadFile(c.log)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	c.check(err)
	var out strings.Builder
	for line := range strings.Lines(string(raw)) {
		parts := strings.SplitN(line, " ", 4) // time, stream, tag, text
		if len(parts) != 4 {
			continue
		}
		if parts[2] == "P" {
			parts[3] = strings.TrimSuffix(parts[3], "\n")
		}
		out.WriteString(parts[3])
	}
	return out.String()
}

// says waits until the container has printed a text.
func (c *container) says(text string) {
	c.Helper()
	harness.Eventually(c, "the container prints "+text, func() (bool, string) {
		out := c.printed()
		return strings.Contains(out, text), out[max(0, len(out)-2000):]
	})
}

// tryExec runs a command in the container. timeout is CRI's, in seconds.
func (c *container) tryExec(timeout int64, args ...string) (*cri.ExecSyncResponse, error) {
	return c.rt.ExecSync(c.ctx, &cri.ExecSyncRequest{ContainerId: c.id, Cmd: args, Timeout: timeout})
}

// exec runs a command that must succeed, and returns what it prints.
func (c *container) exec(args ...string) string {
	c.Helper()
	resp, err := c.tryExec(int64(60*harness.SlowFactor()), args...)
	c.check(err)
	if resp.GetExitCode() != 0 {
		c.Fatalf("%q ended with %d: %s%s", args, resp.GetExitCode(), resp.GetStdout(), resp.GetStderr())
	}
	return strings.TrimSpace(string(resp.GetStdout()))
}

// process is the container's first process on the host; 0 when it has none.
func (c *container) process() int {
	c.Helper()
	resp, err := c.rt.ContainerStatus(c.ctx, &cri.ContainerStatusRequest{ContainerId: c.id, Verbose: true})
	c.check(err)
	var info struct {
		PID int `json:"pid"`
	}
	c.check(json.Unmarshal([]byte(resp.GetInfo()["info"]), &info))
	return info.PID
}

// stop ends a container at once and removes it.
func (c *container) stop() {
	c.Helper()
	if c.id == "" {
		return
	}
	_, err := c.rt.RemoveContainer(c.ctx, &cri.RemoveContainerRequest{ContainerId: c.id})
	c.check(err)
}

func itoa(i int) string { return strconv.Itoa(i) }
