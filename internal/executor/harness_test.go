package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/client"
	"monopod.dev/monopod/internal/executor/launch"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/test/harness"
)

// patience bounds every wait for something that should happen at once; MONOPOD_TEST_SLOW stretches it where machines are
// emulated.
var patience = 90 * time.Second * time.Duration(slow())

func slow() int {
	var n int
	if _, err := fmt.Sscan(os.Getenv("MONOPOD_TEST_SLOW"), &n); err != nil || n < 1 {
		return 1
	}
	return n
}

var (
	binary string // monopod-executor, built by TestMain
	rootfs string // busybox, shared by all containers
	nodes  atomic.Int32
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests make containers: run them as root")
		return 1
	}
	dir, err := os.MkdirTemp("", "mpx")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := makeRootfs(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// noteSources lets go test know what the binary is made of: results of another binary must not come from its cache. It
// takes note of nothing before the tests run.
var noteSources = sync.OnceValue(func() error {
	if os.Getenv("MONOPOD_BIN") != "" {
		return nil
	}
	for _, root := range []string{".", "../host", "../kit", "../../cmd/monopod-executor", "../../go.mod"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				_, err = os.Stat(path)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
})

// build builds the executor, or takes the one in $MONOPOD_BIN where there is nothing to build with.
func build(dir string) (err error) {
	if !raceEnabled || os.Getenv("MONOPOD_BIN") != "" {
		binary, err = harness.BuildExecutor(dir)
		return err
	}
	binary = filepath.Join(dir, "monopod-executor")
	cmd := exec.Command("go", "build", "-trimpath", "-tags", "seccomp netgo osusergo", "-race", "-o", binary, "monopod.dev/monopod/cmd/monopod-executor")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build monopod-executor (Debian packages gcc, libseccomp-dev, pkg-config): %w\n%s", err, out)
	}
	return nil
}

func makeRootfs(dir string) error {
	rootfs = filepath.Join(dir, "rootfs")
	for _, d := range []string{"bin", "proc", "dev", "sys", "tmp", "etc"} {
		if err := os.MkdirAll(filepath.Join(rootfs, d), 0o755); err != nil {
			return err
		}
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return fmt.Errorf("busybox is missing (Debian package busybox-static): %w", err)
	}
	raw, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(rootfs, "bin/busybox"), raw, 0o755); err != nil {
		return err
	}
	for _, applet := range []string{"sh", "sleep", "cat", "echo", "yes", "seq", "head", "tail", "dd", "stty", "true", "kill", "tty", "wc", "id",
		"ln", "mkfifo", "mknod", "rm", "mkdir", "chmod", "chown", "sed"} {
		if err := os.Symlink("busybox", filepath.Join(rootfs, "bin", applet)); err != nil {
			return err
		}
	}
	// Programs that exist, and cannot be executed.
	return os.WriteFile(filepath.Join(rootfs, "bin/badscript"), []byte("#!/no/such/interpreter\n"), 0o755)
}

// node is one executor, with a directory and a cgroup of its own.
type node struct {
	t      *testing.T
	dir    string
	cgroup string
	cfg    launch.Config
	c      *client.Client
	down   bool // the executor has been shut down, or killed, by the test
}

func newNode(t *testing.T) *node {
	t.Helper()
	return newNodeOf(t, (*node).launch)
}

// newNodeOf is newNode with an executor that is started in another way.
func newNodeOf(t *testing.T, start func(*node)) *node {
	t.Helper()
	if err := noteSources(); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "mpx")
	if err != nil {
		t.Fatal(err)
	}
	cgroup := fmt.Sprintf("/mp-test-%d-%d", os.Getpid(), nodes.Add(1))
	harness.CheckPlace(t, harness.Place{Dirs: []string{dir}, CgroupRoot: cgroup})
	n := &node{t: t, dir: dir, cgroup: cgroup, cfg: launch.Config{
		Binary: binary, Socket: filepath.Join(dir, "x.sock"), Dir: filepath.Join(dir, "x"), CgroupPath: cgroup + "/executor"}}
	start(n)
	n.c = client.New(client.Config{Socket: n.cfg.Socket, Log: slog.New(slog.DiscardHandler), Patience: patience})
	t.Cleanup(n.close)
	return n
}

func (n *node) launch() {
	n.t.Helper()
	if _, err := launch.Ensure(n.ctx(), n.cfg); err != nil {
		n.t.Fatal(err)
	}
}

// ctx ends with patience.
func (n *node) ctx() context.Context {
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	n.t.Cleanup(cancel)
	return ctx
}

// close shuts the executor down and checks that nothing is left.
func (n *node) close() {
	t := n.t
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if !n.down {
		states, err := n.c.List(ctx)
		if err != nil {
			t.Error("list: ", err)
		}
		for _, s := range states {
			if s.Phase != protocol.Exited {
				n.c.Kill(ctx, protocol.KillRequest{ID: s.ID, Signal: int(unix.SIGKILL), All: true})
			}
		}
		for _, s := range states {
			n.awaitState(s.ID, func(s protocol.ContainerState) bool { return s.Phase != protocol.Running })
			if err := n.c.Delete(ctx, s.ID); err != nil {
				t.Error("delete: ", err)
			}
		}
		if err := n.c.Shutdown(ctx, protocol.ShutdownRequest{}); err != nil {
			t.Error("shutdown: ", err)
		}
	}
	n.c.Close()
	n.checkNothingLeft()
	log := readFile(filepath.Join(n.cfg.Dir, "log"))
	if strings.Contains(log, "DATA RACE") || strings.Contains(log, "panic: ") {
		t.Error("the executor has a race, or panicked")
	}
	if t.Failed() {
		t.Logf("executor's log:\n%s", log)
	}
	os.RemoveAll(n.dir)
}

func (n *node) checkNothingLeft() {
	t := n.t
	for _, dir := range cgroupDirs(n.cgroup) {
		filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && path != dir {
				t.Errorf("cgroup left: %s (processes: %s)", path, readFile(filepath.Join(path, "cgroup.procs")))
			}
			return nil
		})
		if err := os.Remove(dir); err != nil {
			t.Error("cgroup left: ", err)
		}
	}
	for _, name := range []string{"x.sock", "x/journal", "x/containers", "x/libcontainer"} {
		if _, err := os.Lstat(filepath.Join(n.dir, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("left behind: %s (%v)", name, err)
		}
	}
	// Where others bind the host's root, there may be copies of what is mounted here; those are theirs.
	for line := range strings.Lines(readFile("/proc/self/mounts")) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1]+"/", n.dir+"/") {
			t.Errorf("mount left: %s", line)
		}
	}
	eventually(t, "the processes have ended", func() bool { // one that lost the race to be the keeper may be about to end
		procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		return !slices.ContainsFunc(procs, func(p string) bool { return strings.Contains(readFile(p), n.dir) })
	})
}

// cgroupDirs returns the directories of a cgroup in all hierarchies.
func cgroupDirs(path string) (dirs []string) {
	all, _ := filepath.Glob("/sys/fs/cgroup/*" + path)
	if _, err := os.Stat("/sys/fs/cgroup" + path); err == nil {
		all = append(all, "/sys/fs/cgroup"+path)
	}
	seen := map[uint64]bool{} // cpu and cpuacct may be links to one directory
	for _, dir := range all {
		var st unix.Stat_t
		if unix.Stat(dir, &st) == nil && !seen[st.Dev<<32|st.Ino] {
			seen[st.Dev<<32|st.Ino] = true
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

func readFile(path string) string {
	raw, _ := os.ReadFile(path)
	return string(raw)
}

// bundle writes a bundle for a container and returns a request to create it, with a log.
func (n *node) bundle(id ids.ContainerID, change func(*specs.Spec), args ...string) protocol.CreateRequest {
	n.t.Helper()
	spec := &specs.Spec{
		Version: specs.Version,
		Root:    &specs.Root{Path: rootfs, Readonly: true},
		Process: &specs.Process{Args: args, Cwd: "/", Env: []string{"PATH=/bin"},
			Capabilities: &specs.LinuxCapabilities{Bounding: []string{"CAP_KILL"}, Effective: []string{"CAP_KILL"}, Permitted: []string{"CAP_KILL"}}},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"mode=755"}},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"newinstance", "ptmxmode=0666"}},
			{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs"},
		},
		Linux: &specs.Linux{
			CgroupsPath: n.cgroup + "/" + string(id),
			Resources:   &specs.LinuxResources{},
			Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace}, {Type: specs.NetworkNamespace}},
		},
	}
	if change != nil {
		change(spec)
	}
	dir := filepath.Join(n.dir, string(id))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		n.t.Fatal(err)
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o644); err != nil {
		n.t.Fatal(err)
	}
	return protocol.CreateRequest{ID: id, Bundle: dir, LogPath: filepath.Join(dir, "log")}
}

// start creates and starts a container and returns its pid.
func (n *node) start(req protocol.CreateRequest) int {
	n.t.Helper()
	resp, err := n.c.Create(n.ctx(), req)
	if err != nil {
		n.t.Fatal("create: ", err)
	}
	if _, err := n.c.Start(n.ctx(), req.ID); err != nil {
		n.t.Fatal("start: ", err)
	}
	return resp.PID
}

// run starts a container and returns its exit.
func (n *node) run(req protocol.CreateRequest) protocol.Exit {
	n.t.Helper()
	n.start(req)
	return n.exit(req.ID)
}

// exit waits for the container's exit.
func (n *node) exit(id ids.ContainerID) protocol.Exit {
	n.t.Helper()
	return *n.awaitState(id, func(s protocol.ContainerState) bool { return s.Phase == protocol.Exited }).Exit
}

// awaitState waits, by events, until the container's state satisfies ok.
func (n *node) awaitState(id ids.ContainerID, ok func(protocol.ContainerState) bool) protocol.ContainerState {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var got, last protocol.ContainerState
	var once sync.Once
	err := n.c.Events(ctx, func(ev protocol.Event) {
		if ev.Container == nil || ev.Container.ID != id {
			return
		}
		last = *ev.Container
		if ok(last) {
			once.Do(func() { got = last; cancel() })
		}
	})
	if got.ID == "" {
		n.t.Fatalf("container %s did not reach the wanted state: %v; last seen %+v", id, err, last)
	}
	return got
}

func (n *node) kill(id ids.ContainerID, sig unix.Signal) {
	n.t.Helper()
	if err := n.c.Kill(n.ctx(), protocol.KillRequest{ID: id, Signal: int(sig)}); err != nil {
		n.t.Fatal("kill: ", err)
	}
}

// logLine is one line of a CRI log.
type logLine struct{ stream, tag, text string }

func readLog(t *testing.T, path string) (lines []logLine) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(raw) > 0 && raw[len(raw)-1] != '\n' {
		t.Errorf("log %s ends in the middle of a line", path)
	}
	for line := range strings.Lines(string(raw)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		if len(f) != 4 {
			t.Fatalf("log %s has a malformed line %q", path, line)
		}
		if _, err := time.Parse(time.RFC3339Nano, f[0]); err != nil {
			t.Fatalf("log %s: line %q: %v", path, line, err)
		}
		lines = append(lines, logLine{f[1], f[2], f[3]})
	}
	return lines
}

// texts returns the contents of the lines.
func texts(lines []logLine) (out []string) {
	for _, l := range lines {
		out = append(out, l.text)
	}
	return out
}

// eventually asks again and again, for what no event tells.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not come to pass: ", what)
		}
	}
}

// halt stops a process, and returns when none of its threads runs any more: what they have read by then, they have also dealt with.
func halt(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process has stopped", func() bool {
		states, err := proc.ThreadStates(pid)
		return err != nil || !slices.ContainsFunc(states, func(s byte) bool { return s != 'T' })
	})
}

// hello tells the executor's processes.
func (n *node) hello() protocol.HelloResponse {
	n.t.Helper()
	c := client.New(client.Config{Socket: n.cfg.Socket})
	defer c.Close()
	h, err := c.Hello(n.ctx())
	if err != nil {
		n.t.Fatal("hello: ", err)
	}
	return h
}

// awaitEnd waits until the process has ended, reaped or not.
func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	fd, err := proc.OpenFD(pid)
	if err != nil {
		return
	}
	defer fd.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := fd.Wait(ctx); err != nil {
		t.Fatalf("process %d: %v", pid, err)
	}
}

// killWorker kills the worker and returns when another one answers.
func (n *node) killWorker() {
	n.t.Helper()
	before := n.hello()
	if err := unix.Kill(before.WorkerPID, unix.SIGKILL); err != nil {
		n.t.Fatal(err)
	}
	awaitEnd(n.t, before.WorkerPID)
	after := n.hello()
	if after.WorkerPID == before.WorkerPID || after.KeeperPID != before.KeeperPID {
		n.t.Fatalf("after the worker's death: %+v, before: %+v", after, before)
	}
}
