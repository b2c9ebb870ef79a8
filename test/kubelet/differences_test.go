//go:build kubelet

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/examples/deviceplugin/emulator"
	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/plugins/plugin"
)

// These tests hold what an upstream kubelet does with device plugins where our node does otherwise, on purpose (docs/DEVICES.md). They are
// about the kubelet alone: when one of them fails with a newer kubelet, the table there is to be changed.

const widget = "example.com/widget"

// useWidget is how a pod uses a device of the emulated plugin.
const useWidget = "echo x > $(ls -d /dev/emulated-* | head -n 1)"

// emulate serves an emulated plugin of widgets, which registers when the test says so. What is returned ends it.
func (n *node) emulate(endpoint string, devices int, cfg emulator.Config) (*emulator.Plugin, func()) {
	n.Helper()
	cfg.Dir, cfg.Endpoint, cfg.Resource, cfg.Devices, cfg.NoRegistration = pluginDir, endpoint, widget, emulator.Devices(devices, 0), true
	p := emulator.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- p.Run(ctx) }()
	ended := false
	end := func() {
		n.Helper()
		if cancel(); ended {
			return
		}
		ended = true
		if err := <-over; err != nil {
			n.Error(err)
		}
	}
	n.Cleanup(end)
	harness.Eventually(n, endpoint+" is served", func() (bool, string) {
		conn, err := net.Dial("unix", p.Socket())
		if err != nil {
			return false, err.Error()
		}
		conn.Close()
		return true, ""
	})
	return p, end
}

func (n *node) register(p *emulator.Plugin) {
	n.Helper()
	if err := p.Register(context.Background()); err != nil {
		n.Fatal(err)
	}
}

// takesOver is whether the kubelet tells the plugins of a resource apart, by their sockets, as kubelets from v1.37 on do.
func takesOver(t testing.TB) bool {
	t.Helper()
	out, err := exec.Command(os.Getenv("MONOPOD_KUBELET"), "--version").Output()
	var minor int
	if _, scan := fmt.Sscanf(string(out), "Kubernetes v1.%d", &minor); err != nil || scan != nil {
		t.Fatalf("the kubelet's version: %v: %q", errors.Join(err, scan), out)
	}
	return minor >= 37
}

// awaitEnds waits until the kubelet has seen the ends of so many streams of devices since it was started first.
func (n *node) awaitEnds(want int) {
	n.Helper()
	harness.Eventually(n, fmt.Sprintf("%d streams have ended", want), func() (bool, string) {
		log, err := os.ReadFile(n.dir + "/log")
		got := strings.Count(string(log), "ListAndWatch ended unexpectedly")
		return got >= want, fmt.Sprint(got, err)
	})
}

// TestSecondPlugin: a second plugin of a resource is registered, and asked for devices from then on. What devices there are is what either of them
// has told last. Kubelets before v1.37 take the end of the first for that of the second.
func TestSecondPlugin(t *testing.T) {
	n := startForPlugins(t)
	first, endFirst := n.emulate("first.sock", 2, emulator.Config{})
	n.register(first)
	n.awaitDevices(widget, 2)
	n.apply("a", widget, 1, useWidget)
	a := n.awaitUsed("a")

	second, _ := n.emulate("second.sock", 4, emulator.Config{})
	n.register(second)
	n.awaitDevices(widget, 4)
	n.apply("b", widget, 1, useWidget)
	n.awaitUsed("b")
	if first.Allocations.Load() != 1 || second.Allocations.Load() != 1 {
		t.Errorf("the first was asked for devices %d times, the second %d times", first.Allocations.Load(), second.Allocations.Load())
	}
	first.SetHealth("dev-1", v1beta1.Unhealthy)
	n.awaitDevices(widget, 1)
	second.SetHealth("dev-3", v1beta1.Healthy)
	n.awaitDevices(widget, 4)

	endFirst()
	n.awaitEnds(1)
	if takesOver(t) {
		n.apply("c", widget, 1, useWidget)
		n.awaitUsed("c")
		// When the one ends that came last, what it told stays, until the other tells something.
		third, endThird := n.emulate("third.sock", 3, emulator.Config{})
		n.register(third)
		n.awaitDevices(widget, 3)
		endThird()
		n.awaitEnds(2)
		n.awaitDevices(widget, 3)
		second.SetHealth("dev-3", v1beta1.Healthy)
		n.awaitDevices(widget, 4)
	} else {
		n.awaitDevices(widget, 0)
		n.apply("c", widget, 1, useWidget)
		n.awaitRejected("c", "no healthy devices present")
		n.register(second) // only this brings it back
		n.awaitDevices(widget, 4)
	}
	if got := n.runs("a"); got != a {
		t.Errorf("pod a was container %s, and is %s", a, got)
	}
	n.clear("a", "b", "c")
}

// TestFailedRegistration: a registration that fails leaves the plugin before it in its place. Kubelets before v1.37 do not notice its end any more.
func TestFailedRegistration(t *testing.T) {
	n := startForPlugins(t)
	good, end := n.emulate("good.sock", 2, emulator.Config{})
	n.register(good)
	n.awaitDevices(widget, 2)
	bad, _ := n.emulate("bad.sock", 3, emulator.Config{Hooks: emulator.Hooks{Options: func(context.Context) (*v1beta1.DevicePluginOptions, error) {
		return nil, errors.New("out of order")
	}}})
	if err := bad.Register(context.Background()); err == nil || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("a plugin that has no options to tell is registered: %v", err)
	}
	n.apply("a", widget, 1, useWidget)
	n.awaitUsed("a")
	end()
	n.awaitEnds(1)
	if takesOver(t) {
		n.awaitDevices(widget, 0)
		n.apply("b", widget, 1, useWidget)
		n.awaitRejected("b", "no healthy devices present")
	} else {
		n.apply("b", widget, 1, useWidget)
		n.awaitRejected("b", "code = Unavailable")
		n.awaitDevices(widget, 2)
	}
	n.clear("a", "b")
}

// TestRegisteredTwice: a plugin registers again while it is connected. Kubelets from v1.37 on refuse that, do not notice the plugin's end then, and refuse
// it for ever when it comes back under the same name.
func TestRegisteredTwice(t *testing.T) {
	n := startForPlugins(t)
	p, end := n.emulate("widgets.sock", 2, emulator.Config{})
	n.register(p)
	n.awaitDevices(widget, 2)
	again := p.Register(context.Background())
	n.apply("a", widget, 1, useWidget)
	n.awaitUsed("a")
	end()
	n.awaitEnds(1)
	back, _ := n.emulate("widgets.sock", 2, emulator.Config{})
	if takesOver(t) {
		for _, err := range []error{again, back.Register(context.Background())} {
			if err == nil || !strings.Contains(err.Error(), "already connected") {
				t.Errorf("a plugin that is connected, or was, is not refused: %v", err)
			}
		}
		n.awaitDevices(widget, 2)
	} else {
		if again != nil {
			t.Errorf("the second registration: %v", again)
		}
		n.awaitDevices(widget, 0)
		n.register(back)
		n.awaitDevices(widget, 2)
	}
	n.clear("a")
}

// TestPluginThatServesOnceRegistered: the API says that a plugin may serve only after its registration has succeeded. A kubelet connects first.
func TestPluginThatServesOnceRegistered(t *testing.T) {
	startForPlugins(t)
	came := make(chan error, 1)
	p := emulator.New(emulator.Config{Dir: pluginDir, Resource: widget, Devices: emulator.Devices(1, 0), RegisterBeforeServing: true,
		Hooks: emulator.Hooks{Registered: func(err error) {
			select {
			case came <- err:
			default:
			}
		}}})
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- p.Run(ctx) }()
	err := <-came
	cancel()
	if runs := <-over; runs != nil {
		t.Error(runs)
	}
	if err == nil {
		t.Error("the registration succeeded")
	}
	t.Logf("the plugin was told: %v", err)
}

// TestEmptyTopology: a device whose topology names no NUMA node, as those of Intel's plugin on machines without, can be had but is not told as allocatable.
func TestEmptyTopology(t *testing.T) {
	n := startForPlugins(t)
	p, _ := n.emulate("widgets.sock", 2, emulator.Config{})
	p.SetDevices([]*v1beta1.Device{{ID: "dev-0", Health: v1beta1.Healthy, Topology: &v1beta1.TopologyInfo{}}, {ID: "dev-1", Health: v1beta1.Healthy}})
	n.register(p)
	n.awaitDevices(widget, 2)
	if told := n.allocatable(widget); !slices.Equal(told, []string{"dev-1"}) {
		t.Errorf("the devices %q are told", told)
	}
	n.apply("a", widget, 2, useWidget)
	n.awaitUsed("a")
	if have := n.holdings(widget)["a"]; !slices.Equal(have, []string{"dev-0", "dev-1"}) {
		t.Errorf("the pod has %q", have)
	}
	n.clear("a")
}

// TestUnknownResource: a pod that asks for what no plugin has registered starts without it, and is counted as if it had it.
func TestUnknownResource(t *testing.T) {
	n := startForPlugins(t)
	n.apply("bare", widget, 1, "test -z \"$EMULATED_DEVICES\"")
	bare := n.awaitUsed("bare")
	p, _ := n.emulate("widgets.sock", 2, emulator.Config{})
	n.register(p)
	n.awaitDevices(widget, 2)
	n.apply("a", widget, 1, useWidget)
	n.awaitUsed("a")
	if have := n.holdings(widget); len(have["bare"]) != 0 || len(have["a"]) != 1 || n.runs("bare") != bare {
		t.Errorf("the pods have %q", have)
	}
	n.apply("b", widget, 1, useWidget)
	n.awaitRejected("b", "no set of running pods found to reclaim resources: [(res: example.com/widget, q: 1)")
	n.clear("bare", "a", "b")
}

// TestStoppedContainer: a container that does not run when the kubelet starts, as after a reboot, asks for its device before a plugin can have registered:
// its pod is rejected, though its device is on record, and stays so when the plugin is there.
func TestStoppedContainer(t *testing.T) {
	n := startForPlugins(t)
	s := plugin.Emulated(t, n.place())
	p := s.Start()
	n.awaitDevices(s.Resource, s.Devices)
	n.apply("a", s.Resource, 1, s.Use)
	n.awaitUsed("a")
	n.stopKubelet(syscall.SIGKILL)
	p.Kill()
	n.stopContainers("a")
	n.startKubelet()
	words := "no healthy devices present"
	n.awaitRejected("a", words)
	s.Start()
	n.awaitDevices(s.Resource, s.Devices)
	// Its device is free once the kubelet has cleared away what is left of it. Whoever asks too early is rejected, too.
	name := "b0"
	n.apply(name, s.Resource, s.Devices, s.Use)
	for i := 1; n.decided(name) == corev1.PodFailed; i++ {
		n.clear(name)
		name = fmt.Sprintf("b%d", i)
		n.apply(name, s.Resource, s.Devices, s.Use)
	}
	n.awaitUsed(name)
	n.awaitRejected("a", words)
	n.clear("a", name)
}

// TestDeviceOfEndingPod: when a static pod's manifest is removed its devices are free, whether its containers have ended or not.
func TestDeviceOfEndingPod(t *testing.T) {
	n := startForPlugins(t)
	p, _ := n.emulate("widgets.sock", 1, emulator.Config{})
	n.register(p)
	n.awaitDevices(widget, 1)
	n.write("slow", fmt.Sprintf("  terminationGracePeriodSeconds: 600\n  containers: [{name: c, image: BUSYBOX, command: [sh, -c, \"trap '' TERM; test -c /dev/emulated-dev-0 && echo used; while ! test -f /end/end; do sleep 0.1; done\"], "+
		"volumeMounts: [{name: end, mountPath: /end}], resources: {limits: {%q: 1}}}]\n  volumes: [{name: end, hostPath: {path: HOSTDIR}}]\n", widget))
	n.awaitUsed("slow")
	n.remove("slow")
	harness.Eventually(t, "the kubelet has seen it", func() (bool, string) {
		pods, err := n.api.pods()
		return err == nil && pods["slow"] == nil, fmt.Sprint(err)
	})
	n.apply("next", widget, 1, useWidget)
	n.awaitUsed("next")
	if both := strings.Join(n.inRuntime("slow"), ", "); !strings.Contains(both, "CONTAINER_RUNNING") {
		t.Errorf("the first pod has ended: %s", both)
	}
	if err := os.WriteFile(filepath.Join(n.dir, "host", "end"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	n.gone("slow")
	n.clear("next")
}

// TestUnresponsiveAllocate: a kubelet gives Allocate as long as it likes, and takes no other pod meanwhile, whatever that asks for.
func TestUnresponsiveAllocate(t *testing.T) {
	n := startForPlugins(t)
	asked, answer := make(chan struct{}), make(chan struct{})
	p, _ := n.emulate("widgets.sock", 1, emulator.Config{Hooks: emulator.Hooks{Allocate: func(context.Context, []string) (*v1beta1.AllocateResponse, error) {
		close(asked)
		<-answer
		return nil, errors.New("at last")
	}}})
	n.register(p)
	n.awaitDevices(widget, 1)
	n.apply("stuck", widget, 1, useWidget)
	<-asked
	n.write("other", "  terminationGracePeriodSeconds: 1\n  containers: [{name: c, image: BUSYBOX, command: [sleep, \"100000\"]}]\n")
	time.Sleep(5 * time.Second) //nolint:forbidigo // what does not happen tells nobody
	if running := n.inRuntime("other"); len(running) > 0 {
		t.Errorf("another pod was started meanwhile: %q", running)
	}
	close(answer)
	n.awaitRejected("stuck", "at last")
	n.runs("other")
	n.clear("stuck", "other")
}
