package reboot

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/examples/deviceplugin/emulator"
	"monopod.dev/monopod/internal/kit/atomicfile"
	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
	"monopod.dev/monopod/test/vm/machine"
)

const (
	busybox  = "localhost/test/busybox:1"
	emulated = "example.com/emulated"
	widget   = "example.com/widget"
	serial   = "device.monopod.dev/serial" // the class that --class names
)

// recordFile is what the boot before has written last: who had which devices.
const recordFile = "/var/lib/reboot-test.json"

// The devices: those of a plugin, of a CDI spec, and a serial line of the machine that `monopod device add` adds. The nodes of the first two have
// numbers that Linux leaves to experiments, and are files of the disk; that of the serial line is the kernel's, which makes it at each boot.
const (
	pluginDevices, widgets = 5, 3
	pluginMajor, cdiMajor  = 60, 61
	nodesDir               = "/var/lib/reboot-test"
)

// TestDevices is run twice. At first it gives devices to pods, and cuts the machine off: nothing is ended, nothing is synced. The second
// time, on the same disk, every pod has to get the very devices back that it had.
func TestDevices(t *testing.T) {
	if name, err := os.Hostname(); err != nil || name != machine.Name {
		t.Skip("it restarts the machine: it is for the one of test/vm, which has no other name than " + machine.Name)
	}
	raw, err := os.ReadFile(recordFile)
	if errors.Is(err, os.ErrNotExist) {
		before(t)
		return
	}
	had := map[string][]string{}
	if err := errors.Join(err, json.Unmarshal(raw, &had)); err != nil {
		t.Fatal(err)
	}
	after(t, had)
}

// before fills the node and has the power cut.
func before(t *testing.T) {
	makeNodes(t)
	n := startNode(t, "first")
	n.monopod("image", "load", harness.Archive(t, busybox, images.Busybox))
	n.monopod("device", "add", "/dev/ttyS1", "--class", "serial")
	p := startPlugin(n)
	n.awaitAllocatable(map[corev1.ResourceName]int{emulated: pluginDevices, widget: widgets, serial: 1})

	// Those that are to go take the first devices, so that what is free is not what was never given.
	n.create(newPod("gone", corev1.RestartPolicyAlways, wants{emulated: 1, widget: 1}))
	n.awaitHolders("gone")
	n.create(newPod("once", corev1.RestartPolicyNever, wants{emulated: 1}))
	n.create(bound(newPod("plugin", corev1.RestartPolicyAlways, wants{emulated: 2})))
	n.create(newPod("both", corev1.RestartPolicyAlways, wants{emulated: 1, widget: 1}))
	n.create(bound(newPod("cdi", corev1.RestartPolicyAlways, wants{widget: 1, serial: 1})))
	had := n.awaitHolders("both", "cdi", "gone", "once", "plugin")
	if a := p.given(); len(a) != 4 {
		t.Errorf("Allocate was called for %q", a)
	}
	n.remove("gone")
	delete(had, "gone")
	n.awaitHolders(slices.Collect(maps.Keys(had))...)

	raw, err := json.Marshal(had)
	if err != nil {
		t.Fatal(err)
	}
	if t.Failed() {
		t.FailNow()
	}
	t.Logf("the power is cut; devices are held by %v", had)
	if err := errors.Join(atomicfile.Write(recordFile, raw, 0o600), os.WriteFile("/proc/sysrq-trigger", []byte("b"), 0)); err != nil {
		t.Fatal(err)
	}
	select {}
}

// after looks at what a node makes of it, whose device plugin is started later than the node itself.
func after(t *testing.T, had map[string][]string) {
	t.Logf("devices were held by %v", had)
	n := startNode(t, "second")
	without := n.awaitHolders("cdi")
	for _, name := range []string{"plugin", "both"} {
		n.awaitPod(name, "it waits for its plugin", func(p *corev1.Pod) bool {
			s := p.Status.ContainerStatuses
			return p.Status.Phase != corev1.PodFailed && len(s) == 1 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == "DevicesNotReady"
		})
	}
	n.awaitPod("once", "it has ended", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })

	// What is free is given away before the plugin is back, and nothing else is.
	n.create(newPod("new", corev1.RestartPolicyAlways, wants{widget: 1}))
	n.awaitHolders("cdi", "new")
	n.create(bound(newPod("late", corev1.RestartPolicyAlways, wants{widget: 1})))

	p := startPlugin(n)
	has := n.awaitHolders("both", "cdi", "new", "plugin")
	for _, name := range []string{"both", "cdi", "plugin"} {
		if !slices.Equal(has[name], had[name]) {
			t.Errorf("pod %s had %v, and has %v after the reboot", name, had[name], has[name])
		}
	}
	if !slices.Equal(has["cdi"], without["cdi"]) {
		t.Errorf("pod cdi had %v without the plugin, and has %v with it", without["cdi"], has["cdi"])
	}
	if a := p.given(); len(a) != 2 {
		t.Errorf("Allocate was called for %q: want one call for each of the two pods", a)
	}
	n.create(newPod("free", corev1.RestartPolicyAlways, wants{emulated: 2}))
	n.agrees(n.awaitHolders("both", "cdi", "free", "new", "plugin"))
	n.awaitPod("late", "it waits for a widget", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) == 1 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == "DevicesNotReady"
	})
}

// plugin is an emulated plugin that knows what it was asked for.
type plugin struct {
	*emulator.Plugin
	mu  sync.Mutex
	ids []string
}

// given are the devices of each call of Allocate, in order.
func (p *plugin) given() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.ids)
}

// startPlugin starts a device plugin. Its answers say which boot they are of.
func startPlugin(n *node) *plugin {
	p := &plugin{}
	cfg := emulator.Config{Dir: "/var/lib/kubelet/device-plugins", Resource: emulated, Devices: emulator.Devices(pluginDevices, 0), NodePath: nodesDir + "/%s"}
	cfg.Quirks.Answer = func(ids []string, r *v1beta1.ContainerAllocateResponse) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ids = append(p.ids, fmt.Sprint(ids))
		r.Envs[bootVariable] = n.boot
	}
	p.Plugin = emulator.New(cfg)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(n.Context()) }()
	n.Cleanup(func() {
		if err := <-ended; err != nil {
			n.Error(err)
		}
	})
	return p
}

// wants are numbers of devices by resource.
type wants map[corev1.ResourceName]int64

func newPod(name string, policy corev1.RestartPolicy, w wants) *corev1.Pod {
	grace := int64(0)
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		RestartPolicy: policy, TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{{
			Name: "c", Image: busybox, ImagePullPolicy: corev1.PullNever, Command: []string{"sleep", "36000"},
			Env: []corev1.EnvVar{{Name: holderVariable, Value: name}}, Resources: corev1.ResourceRequirements{Limits: w.limits()},
		}},
	}}
}

// bound has a pod name its node by itself.
func bound(p *corev1.Pod) *corev1.Pod {
	p.Spec.NodeName = machine.Name
	return p
}
