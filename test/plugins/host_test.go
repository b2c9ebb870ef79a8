//go:build plugins

package plugins

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/devices/report"
	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

const busybox = "registry.test/test/busybox:1"

// binary is the path that a variable of the environment names. Only what `make test-plugins` builds must be there.
func binary(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Skipf("$%s names no plugin; README.md says which one it could be", variable)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("$%s: %v", variable, err)
	}
	return path
}

// startNode starts a node with an image of busybox, and with a folder for CDI specs that plugins can write to.
func startNode(t *testing.T) *harness.Node {
	t.Helper()
	n := harness.NewNode(t, harness.Options{})
	if err := os.Mkdir(cdiDir(n), 0o755); err != nil {
		t.Fatal(err)
	}
	n.Start()
	n.LoadImage(harness.Archive(t, busybox, images.Busybox))
	return n
}

func cdiDir(n *harness.Node) string { return filepath.Join(n.Dir, "cdi") }

// place shows a plugin the node's folders where kubelets have theirs, in a mount namespace of its own: what lies on the host at these paths
// is neither needed nor made.
const place = `set -e
mount -t tmpfs plugin /var/lib; mkdir -p /var/lib/kubelet/device-plugins; mount --bind "$1" /var/lib/kubelet/device-plugins
mount -t tmpfs plugin /run; mkdir /run/cdi; mount --bind "$2" /run/cdi
shift 2; exec "$@"`

// plugin is a program that runs.
type plugin struct {
	make func() *exec.Cmd
	kept bool          // started again when it ends by itself, as pods of a DaemonSet are
	over chan struct{} // it has ended and is not started again

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended bool // on our word
	ends  int  // by itself
}

// start runs a plugin until it is killed, or the test ends. Its environment is env alone, since some take their settings from it.
func start(t *testing.T, n *harness.Node, env []string, command ...string) *plugin {
	t.Helper()
	return begin(t, n, &plugin{}, env, command...)
}

// keep is start for a plugin that may end by itself, and is then started again.
func keep(t *testing.T, n *harness.Node, env []string, command ...string) *plugin {
	t.Helper()
	return begin(t, n, &plugin{kept: true}, env, command...)
}

func begin(t *testing.T, n *harness.Node, p *plugin, env []string, command ...string) *plugin {
	t.Helper()
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	p.over = make(chan struct{})
	p.make = func() *exec.Cmd {
		cmd := exec.Command("/bin/sh", append([]string{"-c", place, "sh", n.PluginDir(), cdiDir(n)}, command...)...)
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
		cmd.Dir = dir
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		return cmd
	}
	p.cmd = p.make()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.run()
	t.Cleanup(func() {
		p.kill()
		log.Close()
		if said, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s said:\n%s", command[0], said)
		}
	})
	return p
}

func (p *plugin) run() {
	defer close(p.over)
	for {
		_ = p.cmd.Wait() // the tests see what a plugin does
		p.mu.Lock()
		p.ends++
		again := p.kept && !p.ended
		if again {
			p.cmd = p.make()
			again = p.cmd.Start() == nil
		}
		p.mu.Unlock()
		if !again {
			return
		}
	}
}

// kill ends the plugin as if it crashed, and waits for its end.
func (p *plugin) kill() { p.end(syscall.SIGKILL) }

// stop ends the plugin in its own manner, and waits for its end.
func (p *plugin) stop() { p.end(syscall.SIGTERM) }

func (p *plugin) end(sig syscall.Signal) {
	p.mu.Lock()
	p.ended = true
	_ = p.cmd.Process.Signal(sig)
	p.mu.Unlock()
	<-p.over
}

// devNodes makes character devices that are /dev/null under other names.
func devNodes(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mknod(path, syscall.S_IFCHR|0o666, 1<<8|3); err != nil {
			t.Fatal(&os.PathError{Op: "mknod", Path: path, Err: err})
		}
	}
}

// awaitResource waits for what the node says of a resource, and that it is a plugin's.
func awaitResource(t *testing.T, n *harness.Node, resource string, capacity, allocatable int) {
	t.Helper()
	want := fmt.Sprintf("%d %d", capacity, allocatable)
	harness.Eventually(t, resource+": capacity and allocatable are "+want, func() (bool, string) {
		name := strings.ReplaceAll(resource, ".", `\.`)
		got := n.Kubectl("get", "node", n.Name, "-o", fmt.Sprintf("jsonpath={.status.capacity.%s} {.status.allocatable.%s}", name, name))
		return got == want, got
	})
	harness.Eventually(t, resource+" is a plugin's", func() (bool, string) {
		for _, d := range devices(t, n) {
			if d.Resource == resource && filepath.Dir(d.Source) != n.PluginDir() && len(d.Holders) == 0 {
				return false, fmt.Sprintf("%+v", d)
			}
		}
		return true, ""
	})
}

// apply makes a pod that asks for devices and uses them by a shell command.
func apply(n *harness.Node, name, resource string, count int, use string) {
	script, _ := json.Marshal(use + " && echo used; trap 'exit 0' TERM; sleep 3600 & wait")
	n.Apply(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q}, "spec": {"nodeName": %q, "terminationGracePeriodSeconds": 0, "containers": [{
		"name": "c", "image": %q, "imagePullPolicy": "Never", "resources": {"limits": {%q: %d}}, "command": ["sh", "-c", %s]}]}}`, name, n.Name, busybox, resource, count, script))
}

// awaitUsed waits until a pod has used its devices, and returns all that it said.
func awaitUsed(t *testing.T, n *harness.Node, name string) (said string) {
	t.Helper()
	harness.Eventually(t, "pod "+name+" uses its devices", func() (bool, string) {
		p := getPod(t, n, name)
		if p.Status.Phase != corev1.PodRunning {
			return false, fmt.Sprintf("%+v", p.Status)
		}
		said = n.Kubectl("logs", name)
		return strings.HasSuffix(said, "used\n"), said
	})
	return said
}

// awaitHeld waits until a pod waits for devices, in these words.
func awaitHeld(t *testing.T, n *harness.Node, name, words string) {
	t.Helper()
	harness.Eventually(t, "pod "+name+" is held: "+words, func() (bool, string) {
		s := getPod(t, n, name).Status
		return s.Phase == corev1.PodPending && s.Reason == "DevicesNotReady" && strings.Contains(s.Message, words), s.Reason + ": " + s.Message
	})
}

func getPod(t *testing.T, n *harness.Node, name string) (p corev1.Pod) {
	t.Helper()
	if err := json.Unmarshal([]byte(n.Kubectl("get", "pod", name, "-o", "json")), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// container is which container a pod's only one is; it is another one after a restart.
func container(t *testing.T, n *harness.Node, pod string) string {
	t.Helper()
	s := getPod(t, n, pod).Status.ContainerStatuses
	if len(s) != 1 || s[0].State.Running == nil {
		t.Fatalf("pod %s does not run: %+v", pod, s)
	}
	return s[0].ContainerID
}

// devices are all devices, as `monopod device ls` tells them.
func devices(t *testing.T, n *harness.Node) []report.Device {
	t.Helper()
	var list struct{ Devices []report.Device }
	out := n.Monopod("device", "ls", "--admin-socket", filepath.Join(n.Dir, "run", "admin.sock"), "-o", "json")
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return list.Devices
}

// holdings are the names of the devices of a resource that each pod has, sorted.
func holdings(t *testing.T, n *harness.Node, resource string) map[string][]string {
	t.Helper()
	have := map[string][]string{}
	for _, d := range devices(t, n) {
		for _, h := range d.Holders {
			if d.Resource == resource {
				have[h.Pod] = append(have[h.Pod], d.Name)
			}
		}
	}
	for _, names := range have {
		slices.Sort(names)
	}
	return have
}
