//go:build kubelet

package kubelet

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

const (
	registryHost = "test.example"
	nodeName     = "node"
)

// node is a kubelet with the runtime below it.
type node struct {
	testing.TB
	rt         *harness.Node
	dir        string
	port       int
	cgroupRoot string
	api        *api
	logged     int64 // how long the log was when the kubelet was started

	cmd  *exec.Cmd
	done chan struct{}
}

// start starts the runtime and a kubelet with the configuration of docs/KUBELET.md; extra replaces or adds keys.
func start(t testing.TB, extra map[string]any) *node {
	t.Helper()
	n := &node{TB: t, cgroupRoot: cgroupRoot(t)}
	n.rt = harness.NewNode(t, harness.Options{Command: "runtime", HostsTOML: harness.PushImages(t, registryHost, map[string]harness.ImageMaker{
		"busybox": images.Busybox, "other": other,
	})})
	if err := os.Chmod(n.rt.Dir, 0o755); err != nil { // users of user namespaces pass it
		t.Fatal(err)
	}
	n.dir = filepath.Join(n.rt.Dir, "kubelet")
	for _, d := range []string{n.dir + "/manifests", n.dir + "/root", n.dir + "/logs", n.dir + "/host", n.place().CDI} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n.port = freePort(t)
	n.api = newAPI(t, n.dir, n.port)
	cfg := documented(t)
	maps.Copy(cfg, map[string]any{
		"containerRuntimeEndpoint": "unix://" + n.rt.CRISocket(), "staticPodPath": n.dir + "/manifests", "podLogsDir": n.dir + "/logs",
		"cgroupRoot": n.cgroupRoot, "port": n.port, "healthzPort": freePort(t),
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": false},
			"x509": map[string]any{"clientCAFile": n.api.caFile}},
	})
	maps.Copy(cfg, extra)
	raw, err := yaml.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.dir+"/config.yaml", raw, 0o644); err != nil {
		t.Fatal(err)
	}
	n.rt.Start()
	t.Cleanup(func() {
		n.stopKubelet(syscall.SIGTERM)
		forgetPlugins(t)
		if err := mount.UnmountBelow(n.dir); err != nil {
			t.Errorf("unmount the kubelet's volumes: %v", err)
		}
	})
	n.startKubelet()
	return n
}

// other is an image with an id of its own.
func other(name string) (ociarchive.Image, error) {
	img, err := images.Busybox(name)
	img.Config.Labels = map[string]string{"other": "yes"}
	return img, err
}

// documented is the configuration in docs/KUBELET.md.
func documented(t testing.TB) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(harness.Root(t), "docs/KUBELET.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(text), "    apiVersion: kubelet.config.k8s.io/v1beta1\n")
	if !ok {
		t.Fatal("docs/KUBELET.md has no KubeletConfiguration")
	}
	var lines []string
	for line := range strings.Lines(block) {
		if !strings.HasPrefix(line, "    ") {
			break
		}
		lines = append(lines, line[4:])
	}
	cfg := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte("apiVersion: kubelet.config.k8s.io/v1beta1\n"+strings.Join(lines, "")), &cfg); err != nil {
		t.Fatalf("the configuration in docs/KUBELET.md: %v", err)
	}
	return cfg
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// startKubelet starts the kubelet and returns when its API answers.
func (n *node) startKubelet() {
	n.Helper()
	log, err := os.OpenFile(n.dir+"/log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		n.Fatal(err)
	}
	defer log.Close()
	if n.logged, err = log.Seek(0, io.SeekEnd); err != nil {
		n.Fatal(err)
	}
	n.cmd = exec.Command(os.Getenv("MONOPOD_KUBELET"), "--config", n.dir+"/config.yaml", "--root-dir", n.dir+"/root",
		"--hostname-override", nodeName, "--node-ip", nodeIP)
	n.cmd.Stdout, n.cmd.Stderr = log, log
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := n.cmd.Start(); err != nil {
		n.Fatal(err)
	}
	done := make(chan struct{})
	n.done = done
	go func() {
		_ = n.cmd.Wait()
		close(done)
	}()
	harness.Eventually(n, "the kubelet is up", func() (bool, string) {
		select {
		case <-done:
			n.Fatalf("the kubelet ended: %s\n%s", n.cmd.ProcessState, n.kubeletLog(30))
		default:
		}
		_, err := n.api.get("/pods", nil)
		return err == nil, fmt.Sprint(err)
	})
}

func (n *node) stopKubelet(sig syscall.Signal) {
	n.Helper()
	select {
	case <-n.done:
		return
	default:
	}
	if err := n.cmd.Process.Signal(sig); err != nil {
		n.Error(err)
	}
	select {
	case <-n.done:
	case <-time.After(time.Minute):
		_ = n.cmd.Process.Kill()
		<-n.done
		n.Errorf("the kubelet did not end after %v", sig)
	}
	if n.Failed() {
		n.Logf("log of the kubelet:\n%s", n.kubeletLog(60))
	}
}

func (n *node) kubeletLog(lines int) string {
	raw, _ := os.ReadFile(n.dir + "/log")
	all := strings.Split(string(raw), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// write makes a manifest the kubelet's, whole at once. HOSTDIR stands for the folder of host paths, BUSYBOX and OTHER for images.
func (n *node) write(name, spec string) {
	n.Helper()
	n.writeAs(name, "", spec)
}

// writeAs gives the pod an id, so that a later manifest changes the pod; without one it would be another pod.
func (n *node) writeAs(name, uid, spec string) {
	n.Helper()
	text := strings.NewReplacer("BUSYBOX", registryHost+"/busybox:1", "OTHER", registryHost+"/other:1", "HOSTDIR", n.dir+"/host").Replace(
		fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: default, uid: %q, labels: {app: %s}}\nspec:\n%s", name, uid, name, spec))
	tmp := filepath.Join(n.dir, name+".yaml")
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		n.Fatal(err)
	}
	if err := os.Rename(tmp, n.manifest(name)); err != nil {
		n.Fatal(err)
	}
}

func (n *node) manifest(name string) string { return filepath.Join(n.dir, "manifests", name+".yaml") }

func (n *node) remove(names ...string) {
	n.Helper()
	for _, name := range names {
		if err := os.Remove(n.manifest(name)); err != nil {
			n.Fatal(err)
		}
	}
}

var logLine = regexp.MustCompile(`^[EW]\d{4} [\d:.]+ +\d+ ([a-z_]+\.go):\d+\] (.*)`)

// complaints are the kubelet's warnings and errors: one example for each place in its source, with how often it came.
func (n *node) complaints() string {
	f, err := os.Open(n.dir + "/log")
	if err != nil {
		n.Fatal(err)
	}
	defer f.Close()
	count, example := map[string]int{}, map[string]string{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if m := logLine.FindStringSubmatch(lines.Text()); m != nil {
			words := strings.Fields(m[2])
			place := m[1] + " " + strings.Join(words[:min(4, len(words))], " ")
			if count[place]++; count[place] == 1 {
				example[place] = m[1] + ": " + m[2][:min(len(m[2]), 400)]
			}
		}
	}
	var out strings.Builder
	for _, place := range slices.Sorted(maps.Keys(count)) {
		fmt.Fprintf(&out, "%4d × %s\n", count[place], example[place])
	}
	return out.String()
}

// cpu is the processor time that a process has used (proc_pid_stat(5), fields 14 and 15).
func cpu(t testing.TB, pid int) time.Duration {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	fields := strings.Fields(rest)
	var ticks int
	for _, f := range fields[11:13] {
		v, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		ticks += v
	}
	return time.Duration(ticks) * time.Second / 100
}
