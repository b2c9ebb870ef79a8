package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/network"
	"monopod.dev/monopod/internal/state"
	"monopod.dev/monopod/test/harness"
)

// TestMain is also the test plugin's main: it is this binary under another name.
func TestMain(m *testing.M) {
	if os.Getenv("CNI_COMMAND") != "" {
		os.Exit(pluginMain())
	}
	goleak.VerifyTestMain(m)
}

// testHost is a network namespace that plays the host: the test's goroutine, and the plugins that it runs, are in it.
type testHost struct {
	*testing.T
	dir string
	log lockedBuffer
	seq int
}

func newHost(t *testing.T) *testHost {
	t.Helper()
	harness.NewNetwork(t)
	dir, err := os.MkdirTemp("/tmp", "mpcni")
	if err != nil {
		t.Fatal(err)
	}
	h := &testHost{T: t, dir: dir}
	harness.CheckHost(t, harness.Place{Dirs: []string{dir}})
	h.Cleanup(func() { harness.ClearNetwork(t) })
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", h.log.String())
		}
		h.must(tree.Remove(context.Background(), dir)) // somebody beside this test may have a copy of the host's mounts for a moment
	})
	for _, d := range []string{"conf", "bin", "behave"} {
		h.must(os.Mkdir(filepath.Join(dir, d), 0o755))
	}
	return h
}

func (h *testHost) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// write writes a file below the test's folder, in place of another.
func (h *testHost) write(name, content string) {
	h.Helper()
	path := filepath.Join(h.dir, name)
	h.must(os.MkdirAll(filepath.Dir(path), 0o755))
	h.must(os.WriteFile(path+"~", []byte(content), 0o644))
	h.must(os.Rename(path+"~", path))
}

func (h *testHost) remove(name string) {
	h.Helper()
	h.must(os.RemoveAll(filepath.Join(h.dir, name)))
}

func (h *testHost) openDB(name string) *state.DB {
	h.Helper()
	db, _, err := state.Open(state.Config{Path: filepath.Join(h.dir, name)})
	h.must(err)
	h.Cleanup(func() { h.must(db.Close()) })
	return db
}

// open makes a network, which is closed at the end of the test, with all attachments ended. A bound that is not given is that
// of a test.
func (h *testHost) open(db *state.DB, b Bounds) *Network {
	h.Helper()
	if db == nil {
		h.seq++
		db = h.openDB(fmt.Sprintf("%d.db", h.seq))
	}
	slow := 20 * time.Second * harness.SlowFactor()
	for _, d := range []*time.Duration{&b.Add, &b.Del, &b.Check, &b.GC, &b.Status} {
		if *d == 0 {
			*d = slow
		}
	}
	n, err := New(h.Context(), Config{DB: db, ConfDir: filepath.Join(h.dir, "conf"), BinDirs: []string{filepath.Join(h.dir, "bin"), "/usr/lib/cni"},
		CacheDir: filepath.Join(h.dir, "cache"), Bounds: b, Log: slog.New(slog.NewTextHandler(&h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	h.must(err)
	h.Cleanup(func() {
		h.must(n.Remove(h.Context()))
		h.must(n.Remove(h.Context())) // idempotent
		n.Close()
		if left := n.sandboxes(); len(left) > 0 {
			h.Errorf("attachments are left: %v", left)
		}
	})
	return n
}

// sandbox makes a network namespace, pinned at the returned path.
func (h *testHost) sandbox(name string) string {
	h.Helper()
	path := filepath.Join(h.dir, "ns-"+name)
	harness.PinNetNS(h, path)
	return path
}

// drop ends a sandbox's namespace; the pin's file stays, as after a reboot.
func (h *testHost) drop(path string) {
	h.Helper()
	harness.DropNetNS(h, path)
}

// in runs f on a thread of the namespace.
func (h *testHost) in(path string, f func() error) {
	h.Helper()
	h.must(harness.InNetNS(path, f))
}

// serve listens in a namespace and answers each connection with the address it comes from.
func (h *testHost) serve(path, addr string) {
	h.Helper()
	h.in(path, func() error {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		harness.EchoAddress(h, l)
		return nil
	})
}

// ask connects from a namespace and returns the address that the server saw.
func (h *testHost) ask(path, addr string) netip.Addr {
	h.Helper()
	var seen netip.AddrPort
	h.in(path, func() error {
		c, err := net.DialTimeout("tcp", addr, 60*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		var raw bytes.Buffer
		if _, err := raw.ReadFrom(c); err != nil {
			return err
		}
		seen, err = netip.ParseAddrPort(raw.String())
		return err
	})
	return seen.Addr()
}

// run runs a tool of the host and returns what it prints.
func (h *testHost) run(name string, args ...string) string {
	h.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		h.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// request is that of an ordinary pod.
func request(id, path string) network.Request {
	return network.Request{SandboxID: ids.SandboxID(id), NetNS: path, Pod: network.PodInfo{Namespace: "default", Name: "pod-" + id, UID: "uid-" + id}}
}

func (h *testHost) setup(n *Network, id, path string) network.Result {
	h.Helper()
	res, err := n.Setup(h.Context(), request(id, path))
	h.must(err)
	return res
}

// The test plugin. It records its calls and speaks version 1.1.0. What it does beside is in behave/PLUGIN.COMMAND.

// recorded is one call of the test plugin.
type recorded struct {
	Plugin, Command, ID, NetNS, IfName, Args string
	Config                                   struct {
		CNIVersion    string
		Name          string
		Tag           string
		RuntimeConfig map[string]json.RawMessage
		PrevResult    json.RawMessage     `json:",omitempty"`
		Valid         []map[string]string `json:"cni.dev/valid-attachments"`
	}
}

func (r recorded) String() string { return r.Plugin + " " + r.Command + " " + r.ID }

// install puts the test plugin into the host's folder of plugins.
func (h *testHost) install(names ...string) {
	h.Helper()
	self, err := os.Executable()
	h.must(err)
	for _, name := range names {
		h.must(os.Symlink(self, filepath.Join(h.dir, "bin", name)))
	}
}

// behave says what a plugin does on a command; empty: what it should.
func (h *testHost) behave(plugin, command, what string) {
	h.Helper()
	h.write(filepath.Join("behave", plugin+"."+command), what)
}

// calls are those of the test plugins, but for STATUS.
func (h *testHost) calls(command ...string) (found []recorded) {
	h.Helper()
	raw, err := os.ReadFile(filepath.Join(h.dir, "calls"))
	if err != nil && !os.IsNotExist(err) {
		h.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		var r recorded
		h.must(json.Unmarshal([]byte(line), &r))
		if len(command) == 0 && r.Command != "STATUS" || len(command) > 0 && r.Command == command[0] {
			found = append(found, r)
		}
	}
	return found
}

func (h *testHost) wantCalls(want ...string) {
	h.Helper()
	var got []string
	for _, c := range h.calls() {
		got = append(got, c.String())
	}
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		h.Errorf("calls %q, want %q", got, want)
	}
}

func pluginMain() int {
	dir := filepath.Dir(filepath.Dir(os.Args[0]))
	name, command := filepath.Base(os.Args[0]), os.Getenv("CNI_COMMAND")
	r := recorded{Plugin: name, Command: command, ID: os.Getenv("CNI_CONTAINERID"), NetNS: os.Getenv("CNI_NETNS"),
		IfName: os.Getenv("CNI_IFNAME"), Args: os.Getenv("CNI_ARGS")}
	if err := json.NewDecoder(os.Stdin).Decode(&r.Config); err != nil {
		panic(err)
	}
	line, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "calls"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		panic(err)
	}
	if _, err := f.Write(append(line, '\n')); err != nil {
		panic(err)
	}
	raw, _ := os.ReadFile(filepath.Join(dir, "behave", name+"."+command))
	switch what, rest, _ := strings.Cut(string(raw), " "); what {
	case "say": // and end well
		fmt.Fprintln(os.Stderr, "on standard error")
		fmt.Print(rest)
		return 0
	case "fail":
		fmt.Fprintln(os.Stderr, "on standard error")
		fmt.Print(rest)
		return 1
	case "flood":
		fmt.Print(strings.Repeat("x", 2*maxStdout))
		return 0
	case "background": // a child that keeps the output open
		child := exec.Command("sleep", rest)
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			panic(err)
		}
	case "hang": // with a child that has left its parent
		child := exec.Command("setsid", "sh", "-c", "echo $$ >"+filepath.Join(dir, "child~")+"; mv "+filepath.Join(dir, "child~")+" "+filepath.Join(dir, "child")+"; exec sleep 1000")
		child.Stdout = os.Stdout
		if err := child.Run(); err != nil {
			panic(err)
		}
	}
	if command == "ADD" {
		fmt.Printf(`{"cniVersion": %q, "interfaces": [{"name": "eth0", "sandbox": %q}], "ips": [{"address": "fd00::7/64", "interface": 0}, {"address": "10.9.8.7/24", "gateway": "10.9.8.1", "interface": 0}]}`,
			r.Config.CNIVersion, r.NetNS)
	}
	return 0
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
