package reboot

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"monopod.dev/monopod/internal/devices/report"
	"monopod.dev/monopod/test/harness"
)

// node is monopod as it is installed: everything is where it is by default. It is never stopped, the machine is.
type node struct {
	*testing.T
	boot  string // which one this is, by name
	pods  typedcorev1.PodInterface
	nodes typedcorev1.NodeInterface
}

// startNode starts it and waits until it is ready.
func startNode(t *testing.T, boot string) *node {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if raw, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("the node's log ends with\n%s", raw[max(0, len(raw)-16000):])
		}
		log.Close()
	})
	// The machine has no network, and so no address of its own.
	cmd := exec.Command(harness.Bin(t, "monopod"), "up", "--agent-address", "127.0.0.1", "--etcd-tick", "10ms")
	cmd.Stderr = log
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // that is how it was ended
	})
	ready := make(chan bool, 1)
	go func() { ready <- bufio.NewScanner(stdout).Scan() }()
	select {
	case ok := <-ready:
		if !ok {
			t.Fatal("monopod ended before it was ready")
		}
	case <-time.After(60 * time.Second * harness.SlowFactor()):
		t.Fatal("monopod was not ready in time")
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", "/etc/monopod/kubeconfig")
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS, cfg.Burst = 1000, 1000
	core := kubernetes.NewForConfigOrDie(cfg).CoreV1()
	return &node{t, boot, core.Pods("default"), core.Nodes()}
}

// monopod runs one of its commands, with all defaults, and returns its standard output.
func (n *node) monopod(args ...string) string {
	n.Helper()
	cmd := exec.Command(harness.Bin(n, "monopod"), args...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		n.Fatalf("monopod %s: %v\n%s", strings.Join(args, " "), err, said.String())
	}
	return string(out)
}

func (w wants) limits() corev1.ResourceList {
	l := corev1.ResourceList{}
	for name, count := range w {
		l[name] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	return l
}

func (n *node) create(p *corev1.Pod) {
	n.Helper()
	if _, err := n.pods.Create(n.Context(), p, metav1.CreateOptions{}); err != nil {
		n.Fatal(err)
	}
}

func (n *node) remove(name string) {
	n.Helper()
	if err := n.pods.Delete(n.Context(), name, metav1.DeleteOptions{}); err != nil {
		n.Fatal(err)
	}
}

func (n *node) awaitPod(name, what string, is func(*corev1.Pod) bool) {
	n.Helper()
	harness.Eventually(n, "pod "+name+": "+what, func() (bool, string) {
		p, err := n.pods.Get(n.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return is(p), fmt.Sprintf("%+v", p.Status)
	})
}

func (n *node) awaitAllocatable(want map[corev1.ResourceName]int) {
	n.Helper()
	list, err := n.nodes.List(n.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		n.Fatalf("%d nodes: %v", len(list.Items), err)
	}
	harness.Eventually(n, fmt.Sprintf("allocatable are %v", want), func() (bool, string) {
		self, err := n.nodes.Get(n.Context(), list.Items[0].Name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for name, count := range want {
			if q := self.Status.Allocatable[name]; q.Value() != int64(count) {
				return false, fmt.Sprint(self.Status.Allocatable)
			}
		}
		return true, ""
	})
}

// Variables of containers: by what their processes are known, and which boot the plugin's answer is of.
const holderVariable, bootVariable = "REBOOT_HOLDER", "REBOOT_BOOT"

// awaitHolders waits until the containers of these pods run, and no others, and returns the devices of each, as the kernel has them. A device with
// two holders fails the test at once.
func (n *node) awaitHolders(pods ...string) (has map[string][]string) {
	n.Helper()
	slices.Sort(pods)
	harness.Eventually(n, fmt.Sprintf("these run: %v", pods), func() (bool, string) {
		has = n.holders()
		return slices.Equal(slices.Sorted(maps.Keys(has)), pods), fmt.Sprintf("%v; %s", has, n.states())
	})
	return has
}

// states are those of all pods.
func (n *node) states() (all string) {
	list, err := n.pods.List(n.Context(), metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	for _, p := range list.Items {
		all += fmt.Sprintf("pod %s: %s %s %s", p.Name, p.Status.Phase, p.Status.Reason, p.Status.Message)
		for _, c := range p.Status.Conditions {
			if c.Status != corev1.ConditionTrue && c.Message != "" {
				all += fmt.Sprintf(", not %s: %s", c.Type, c.Message)
			}
		}
		for _, s := range p.Status.ContainerStatuses {
			if s.State.Waiting != nil {
				all += fmt.Sprintf(", waits: %s %s", s.State.Waiting.Reason, s.State.Waiting.Message)
			}
		}
		all += "; "
	}
	return all
}

// holders are the devices of each pod's process, sorted: "RESOURCE=NAME".
func (n *node) holders() map[string][]string {
	n.Helper()
	has, by := map[string][]string{}, map[string]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		env := environ(dir)
		pod, ok := env[holderVariable]
		if comm, _ := os.ReadFile(dir + "/comm"); !ok || string(comm) != "sleep\n" {
			continue
		}
		devices := nodesOf(dir)
		if environ(dir)[holderVariable] != pod {
			continue // it has ended, and what was read of it may be nothing
		}
		if told := toldBy(env); !slices.Equal(told, slices.DeleteFunc(slices.Clone(devices), func(d string) bool { return strings.HasPrefix(d, serial) })) {
			n.Fatalf("pod %s: its nodes are those of %v, its variables tell of %v", pod, devices, told)
		}
		if env[emulatedVariable] != "" && env[bootVariable] != n.boot {
			n.Fatalf("pod %s was started with an answer of the %s boot", pod, env[bootVariable])
		}
		for _, d := range devices {
			if other := by[d]; other != "" {
				n.Fatalf("device %s has two holders: %s and %s", d, other, pod)
			}
			by[d] = pod
		}
		has[pod] = devices
	}
	return has
}

// environ is a process's environment; empty when it has ended.
func environ(dir string) map[string]string {
	raw, _ := os.ReadFile(dir + "/environ")
	env := map[string]string{}
	for v := range strings.SplitSeq(string(raw), "\x00") {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	return env
}

// emulatedVariable is what the emulated plugin answers with.
const emulatedVariable = "EMULATED_DEVICES"

// toldBy are the devices of which an environment tells: the plugin's and the CDI spec's.
func toldBy(env map[string]string) (devices []string) {
	for name, value := range env {
		switch {
		case name == emulatedVariable:
			for id := range strings.SplitSeq(value, ",") {
				devices = append(devices, emulated+"="+id)
			}
		case strings.HasPrefix(name, "WIDGET_"):
			devices = append(devices, widget+"="+value)
		}
	}
	slices.Sort(devices)
	return devices
}

// nodesOf are the devices whose nodes a process sees.
func nodesOf(dir string) (devices []string) {
	entries, _ := os.ReadDir(dir + "/root/dev")
	for _, e := range entries {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, "root/dev", e.Name()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
			continue
		}
		minor := int(unix.Minor(st.Rdev))
		switch unix.Major(st.Rdev) {
		case pluginMajor:
			devices = append(devices, fmt.Sprintf("%s=dev-%d", emulated, minor))
		case cdiMajor:
			devices = append(devices, fmt.Sprintf("%s=w%d", widget, minor))
		case ttyMajor:
			if minor >= firstSerial {
				devices = append(devices, fmt.Sprintf("%s=ttyS%d", serial, minor-firstSerial))
			}
		}
	}
	slices.Sort(devices)
	return devices
}

// agrees compares what `monopod device ls` says with who has which devices: all others are free.
func (n *node) agrees(has map[string][]string) {
	n.Helper()
	var list report.List
	if err := json.Unmarshal([]byte(n.monopod("device", "ls", "-o", "json")), &list); err != nil {
		n.Fatal(err)
	}
	told := map[string][]string{}
	for _, d := range list.Devices {
		if d.Health != report.Healthy {
			n.Errorf("device %s=%s is %s: %s", d.Resource, d.Name, d.Health, d.Reason)
		}
		for _, h := range d.Holders {
			told[h.Pod] = append(told[h.Pod], d.Resource+"="+d.Name)
		}
	}
	for _, devices := range told {
		slices.Sort(devices)
	}
	if !maps.EqualFunc(told, has, slices.Equal) || len(list.Devices) != pluginDevices+widgets+1 || len(list.Problems) > 0 {
		n.Errorf("'device ls' tells of %d devices, %v, and the problems %v; these have some: %v", len(list.Devices), told, list.Problems, has)
	}
}

// makeNodes makes the nodes of the devices that the kernel does not make, and the CDI spec.
func makeNodes(t *testing.T) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(nodesDir, 0o755), os.MkdirAll("/etc/cdi", 0o755)); err != nil {
		t.Fatal(err)
	}
	mknod := func(name string, major uint32, minor int) {
		if err := unix.Mknod(filepath.Join(nodesDir, name), unix.S_IFCHR|0o666, int(unix.Mkdev(major, uint32(minor)))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range pluginDevices {
		mknod(fmt.Sprintf("dev-%d", i), pluginMajor, i)
	}
	var devices []string
	for i := range widgets {
		mknod(fmt.Sprintf("w%d", i), cdiMajor, i)
		devices = append(devices, fmt.Sprintf(`{"name": "w%[1]d", "containerEdits": {"env": ["WIDGET_%[1]d=w%[1]d"], "deviceNodes": [{"path": "/dev/widget-%[1]d", "hostPath": "%[2]s/w%[1]d"}]}}`, i, nodesDir))
	}
	spec := fmt.Sprintf(`{"cdiVersion": "0.5.0", "kind": %q, "devices": [%s]}`, widget, strings.Join(devices, ","))
	if err := os.WriteFile("/etc/cdi/widget.json", []byte(spec), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The numbers of serial lines (Documentation/admin-guide/devices.txt).
const ttyMajor, firstSerial = 4, 64
