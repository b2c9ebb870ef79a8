package harness

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"monopod.dev/monopod/internal/host/tree"
)

// Bin returns the path of a built binary: in $MONOPOD_BIN, or in the repository's bin folder. It fails the test when
// the binary has not been built.
func Bin(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("MONOPOD_BIN")
	if dir == "" {
		dir = filepath.Join(Root(t), "bin")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v; run `make build` first", err)
	}
	return path
}

// Root returns the repository's root: the folder of go.mod at or above the working directory.
func Root(t testing.TB) string {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// SlowFactor stretches every bound on time, for machines that are emulated. It is $MONOPOD_TEST_SLOW, or 1.
func SlowFactor() time.Duration {
	var n int
	if _, err := fmt.Sscan(os.Getenv("MONOPOD_TEST_SLOW"), &n); err != nil || n < 1 {
		return 1
	}
	return time.Duration(n)
}

// sequence tells the nodes of one test process apart.
var sequence atomic.Int32

// Node is a monopod process with directories, a bridge, an address range and cgroups of its own. It may be stopped,
// killed and started again; at the end of the test it is stopped for good and the host is checked.
type Node struct {
	t    testing.TB
	Dir  string // holds all of the node's directories
	Name string
	args []string
	// netns is the path of the network namespace in which it runs; empty: the test's.
	netns string
	// sees is Options.Sees.
	sees map[string]string
	// env is what its environment has beside the test's own.
	env map[string]string
	// leaves: the command makes things on the host that outlive it, which `monopod reset` removes.
	leaves bool

	Bridge, CgroupRoot   string
	PodCIDR, ServiceCIDR string

	mu   sync.Mutex
	proc *process
}

type process struct {
	cmd   *exec.Cmd
	log   *logBuffer
	ready chan struct{}
	done  chan struct{}
	err   error
}

// Options of a node.
type Options struct {
	// Command is the monopod command; default "up".
	Command string
	// Args are further arguments.
	Args []string
	// NetNS is the path of the network namespace that plays the host for the node; empty: the test's own.
	NetNS string
	// Sees are folders that the node sees in the place of the host's, by the paths of those. It has a mount namespace of its own then, and nobody
	// sees what it mounts: it is for commands that make no containers.
	Sees map[string]string
	// CDISpecs are files to put into the node's CDI folder, by name.
	CDISpecs map[string]string
	// HostsTOML are registry configurations by host.
	HostsTOML map[string]string
}

// NewNode prepares a node and registers its clean-up; it does not start it.
func NewNode(t testing.TB, o Options) *Node {
	t.Helper()
	id := fmt.Sprintf("%d-%d", os.Getpid(), sequence.Add(1))
	dir, err := os.MkdirTemp("/tmp", "mp-")
	if err != nil {
		t.Fatal(err)
	}
	n := &Node{t: t, Dir: dir, Name: "node-" + id, Bridge: "mpt" + strings.ReplaceAll(id, "-", "x"), CgroupRoot: "/mp-test-" + id,
		PodCIDR: PodRange(t).String()}
	n.ServiceCIDR = serviceRange(n.PodCIDR)
	CheckHost(t, Place{Dirs: []string{dir}, CgroupRoot: n.CgroupRoot, Bridge: n.Bridge})
	write := func(name, content string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range o.CDISpecs {
		write(filepath.Join("cdi", name), content)
	}
	for host, content := range o.HostsTOML {
		write(filepath.Join("certs.d", host, "hosts.toml"), content)
	}
	command := o.Command
	if command == "" {
		command = "up"
	}
	n.args = append(n.arguments(command), o.Args...)
	n.netns, n.sees = o.NetNS, o.Sees
	n.leaves = command != "apiserver" && command != "node"
	t.Cleanup(n.end)
	return n
}

// arguments are those that keep a node of the given command apart from all others.
func (n *Node) arguments(command string) []string {
	args := []string{command, "--data-dir", n.Dir + "/data", "--run-dir", n.Dir + "/run", "--log-level", "debug", "--node-name", n.Name}
	runtime := []string{"--cgroup-root", n.CgroupRoot, "--bridge", n.Bridge, "--pod-cidr", n.PodCIDR,
		"--cni-conf-dir", n.Dir + "/cni", "--registry-config-dir", n.Dir + "/certs.d", "--executor", Bin(n.t, "monopod-executor")}
	specs := []string{"--cdi-spec-dirs", n.Dir + "/cdi"}
	devices := append([]string{"--device-plugin-dir", n.PluginDir(), "--device-plugin-registry-dir", n.Dir + "/plugins_registry", "--pod-resources-socket", n.PodResourcesSocket()}, specs...)
	api := []string{"--write-kubeconfig", n.Kubeconfig(), "--api-port", "0", "--etcd-tick", "10ms", "--service-cidr", n.ServiceCIDR}
	// How full the machine's disk is is not a test's business.
	agent := []string{"--agent-port", "0", "--agent-address", "127.0.0.1", "--pod-logs-dir", n.Dir + "/pods", "--container-logs-dir", n.Dir + "/containers", "--image-gc-high-threshold", "100"}
	switch command {
	case "apiserver":
		return slices.Concat(args, api)
	case "runtime":
		return slices.Concat(args, runtime, specs)
	case "node":
		return slices.Concat(args, agent, devices)
	}
	return slices.Concat(args, runtime, devices, api, agent)
}

// StartNode prepares a node and starts it.
func StartNode(t testing.TB, o Options) *Node {
	t.Helper()
	n := NewNode(t, o)
	n.Start()
	return n
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (n *Node) Kubeconfig() string { return filepath.Join(n.Dir, "kubeconfig") }

// PluginDir is the folder in which device plugins register.
func (n *Node) PluginDir() string { return filepath.Join(n.Dir, "plugins") }

// PodResourcesSocket is the path of the PodResources API's socket.
func (n *Node) PodResourcesSocket() string { return filepath.Join(n.Dir, "pod-resources.sock") }

// CRISocket is the path of the runtime's socket.
func (n *Node) CRISocket() string { return filepath.Join(n.Dir, "run", "cri.sock") }

// ExecutorSocket is the path of the executor's socket.
func (n *Node) ExecutorSocket() string { return filepath.Join(n.Dir, "run", "executor.sock") }

// Start starts the process and waits until it says that it is ready.
func (n *Node) Start(extra ...string) {
	n.t.Helper()
	p := n.launch(extra...)
	select {
	case <-p.ready:
	case <-p.done:
		n.t.Fatalf("monopod ended before it was ready: %v\n%s", p.err, p.log.tail(60))
	case <-time.After(60 * time.Second * SlowFactor()):
		n.t.Fatalf("monopod was not ready in time\n%s", p.log.tail(60))
	}
}

// Begin starts the process and does not wait: it is ready when the first channel is closed, and has ended when the second one is.
func (n *Node) Begin(extra ...string) (ready, ended <-chan struct{}) {
	n.t.Helper()
	p := n.launch(extra...)
	return p.ready, p.done
}

func (n *Node) launch(extra ...string) *process {
	n.t.Helper()
	p := &process{log: &logBuffer{}, ready: make(chan struct{}), done: make(chan struct{})}
	p.cmd = n.Command(extra...)
	p.cmd.Stderr = p.log
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	go func() {
		lines := bufio.NewScanner(stdout)
		if lines.Scan() {
			close(p.ready)
		}
		_, _ = io.Copy(io.Discard, stdout)
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	n.mu.Lock()
	n.proc = p
	n.mu.Unlock()
	return p
}

func (n *Node) current() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proc
}

// Setenv sets a variable of the environment of processes that are started from now on; an empty value takes it back.
func (n *Node) Setenv(name, value string) {
	if n.env == nil {
		n.env = map[string]string{}
	}
	n.env[name] = value
}

// Died is closed when the running monopod has ended.
func (n *Node) Died() <-chan struct{} { return n.current().done }

// PID is the process id of the running monopod.
func (n *Node) PID() int { return n.current().cmd.Process.Pid }

// Log returns what the current process has logged.
func (n *Node) Log() string { return n.current().log.String() }

// Stop ends the process with SIGTERM and waits; pods go on.
func (n *Node) Stop() {
	n.t.Helper()
	n.signal(syscall.SIGTERM)
}

// Kill ends the process with SIGKILL and waits; pods go on.
func (n *Node) Kill() {
	n.t.Helper()
	n.signal(syscall.SIGKILL)
}

// Interrupt sends a signal that asks for an orderly stop, and waits.
func (n *Node) Interrupt(sig syscall.Signal) {
	n.t.Helper()
	n.signal(sig)
}

// Command prepares a monopod process with this node's arguments, which the caller runs.
func (n *Node) Command(extra ...string) *exec.Cmd {
	return n.monopod(append(append([]string{}, n.args...), extra...))
}

// monopod prepares a monopod process in the node's network namespace, which sees the node's folders. Whatever is between becomes monopod: the
// process id is its own.
func (n *Node) monopod(args []string) *exec.Cmd {
	line := append([]string{Bin(n.t, "monopod")}, args...)
	if len(n.sees) > 0 {
		var script strings.Builder
		for _, host := range slices.Sorted(maps.Keys(n.sees)) {
			fmt.Fprintf(&script, "mount --bind '%s' '%s' && ", n.sees[host], host)
		}
		line = append([]string{"unshare", "--mount", "sh", "-c", script.String() + `exec "$@"`, "sh"}, line...)
	}
	if n.netns != "" {
		line = append([]string{"nsenter", "--net=" + n.netns}, line...)
	}
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = os.Environ()
	for name, value := range n.env {
		if value != "" {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	return cmd
}

func (n *Node) signal(sig syscall.Signal) {
	n.t.Helper()
	p := n.current()
	if p == nil {
		return
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		n.t.Errorf("signal monopod: %v", err)
	}
	select {
	case <-p.done:
	case <-time.After(60 * time.Second * SlowFactor()):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT)
		<-p.done
		n.t.Errorf("monopod did not end after %v\n%s", sig, p.log.tail(400))
	}
	if sig != syscall.SIGKILL && p.err != nil {
		n.t.Errorf("monopod ended with %v\n%s", p.err, p.log.tail(40))
	}
}

// end removes everything: the node is started once more to remove its pods when it is not running, or stopped when it is, and
// then its host is cleaned by the node itself, not by the test: what it leaves is a failure.
func (n *Node) end() {
	if n.t.Failed() && n.current() != nil {
		n.t.Logf("log of monopod:\n%s", n.current().log.tail(30))
	}
	if n.current() != nil && n.leaves {
		n.Reset()
	} else if n.current() != nil {
		n.stopped()
	}
	if err := tree.Remove(context.Background(), n.Dir); err != nil {
		n.t.Errorf("remove the node's directory: %v", err)
	}
}

// Reset stops the node, if it runs, and has monopod remove what it has made.
func (n *Node) Reset() {
	n.t.Helper()
	n.stopped()
	out, err := n.monopod(n.resetArgs()).CombinedOutput()
	if err != nil {
		n.t.Errorf("monopod reset: %v\n%s", err, out)
	}
}

// stopped stops the node if it runs.
func (n *Node) stopped() {
	select {
	case <-n.Died():
	default:
		n.Stop()
	}
}

// resetArgs are the arguments of `monopod reset` for this node's places.
func (n *Node) resetArgs() []string {
	return []string{"reset", "--yes", "--data-dir", n.Dir + "/data", "--run-dir", n.Dir + "/run", "--cgroup-root", n.CgroupRoot,
		"--bridge", n.Bridge, "--pod-cidr", n.PodCIDR, "--service-cidr", n.ServiceCIDR, "--write-kubeconfig", n.Kubeconfig(), "--pod-logs-dir", n.Dir + "/pods",
		"--container-logs-dir", n.Dir + "/containers",
		"--cni-conf-dir", n.Dir + "/cni", "--executor", Bin(n.t, "monopod-executor")}
}

// Kubectl runs the real kubectl against the node and returns its standard output; a failure fails the test.
func (n *Node) Kubectl(args ...string) string {
	n.t.Helper()
	out, err := n.TryKubectl("", args...)
	if err != nil {
		n.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, n.Log()[max(0, len(n.Log())-6000):])
	}
	return out
}

// TryKubectl runs kubectl with the given standard input; the error holds what it wrote to standard error.
func (n *Node) TryKubectl(stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second*SlowFactor())
	defer cancel()
	cmd := n.KubectlCommand(ctx, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errout
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, errout.String())
	}
	return out.String(), nil
}

// KubectlCommand prepares a kubectl that the caller runs: $MONOPOD_KUBECTL, or the built one.
func (n *Node) KubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	kubectl := os.Getenv("MONOPOD_KUBECTL")
	if kubectl == "" {
		kubectl = Bin(n.t, "kubectl")
	}
	cmd := exec.CommandContext(ctx, kubectl, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+n.Kubeconfig(), "HOME="+n.Dir)
	return cmd
}

// Apply applies a manifest.
func (n *Node) Apply(manifest string) {
	n.t.Helper()
	// What kubectl reads of the API at first takes a server that is emulated longer than the 32 seconds that it waits by itself.
	if _, err := n.TryKubectl(manifest, "apply", "-f", "-", "--request-timeout="+(32*time.Second*SlowFactor()).String()); err != nil {
		n.t.Fatalf("kubectl apply: %v", err)
	}
}

// Monopod runs a monopod command against the node and returns its standard output.
func (n *Node) Monopod(args ...string) string {
	n.t.Helper()
	cmd := exec.Command(Bin(n.t, "monopod"), args...)
	var errout bytes.Buffer
	cmd.Stderr = &errout
	out, err := cmd.Output()
	if err != nil {
		n.t.Fatalf("monopod %s: %v\n%s", strings.Join(args, " "), err, errout.String())
	}
	return string(out)
}

// LoadImage loads an archive into the node.
func (n *Node) LoadImage(path string) {
	n.t.Helper()
	n.Monopod("image", "load", "--cri-socket", n.CRISocket(), path)
}

// logBuffer keeps what a process logs.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *logBuffer) tail(lines int) string {
	all := strings.Split(b.String(), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
