package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/examples/deviceplugin/emulator"
	"monopod.dev/monopod/test/harness"
)

// What is wrong with a pod's CDI devices is in its status and its events, in words by which the user mends it: each test reads them, does what they
// say, and sees the pod run.

// faults is a node whose CDI files are written by the test, and a plugin that answers with a CDI name.
type faults struct {
	*testing.T
	n      *harness.Node
	answer atomic.Pointer[string] // what Allocate says, a CDI name
}

// newFaults starts the node; with asks the plugin too, which answers with that name.
func newFaults(t *testing.T, asks string) *faults {
	t.Helper()
	f := &faults{T: t, n: harness.StartNode(t, harness.Options{})}
	f.n.LoadImage(archive(t))
	if asks == "" {
		return f
	}
	cfg := emulator.Config{Dir: f.n.PluginDir(), Resource: emulated, Devices: emulator.Devices(2, 0)}
	cfg.Hooks.Allocate = func(context.Context, []string) (*v1beta1.AllocateResponse, error) {
		return &v1beta1.AllocateResponse{ContainerResponses: []*v1beta1.ContainerAllocateResponse{{CdiDevices: []*v1beta1.CDIDevice{{Name: *f.answer.Load()}}}}}, nil
	}
	f.answer.Store(&asks)
	runPlugin(t, cfg)
	awaitResource(t, f.n, 2, 2)
	return f
}

// spec writes a CDI file of one kind, whole at once, and returns its path. devices are names with their containerEdits.
func (f *faults) spec(file, kind string, devices ...string) (path string) {
	f.Helper()
	var list []string
	for i := 0; i < len(devices); i += 2 {
		list = append(list, fmt.Sprintf(`{"name": %q, "containerEdits": {%s}}`, devices[i], devices[i+1]))
	}
	text := fmt.Sprintf(`{"cdiVersion": "0.5.0", "kind": %q, "devices": [%s]}`, kind, strings.Join(list, ", "))
	path = f.path("cdi", file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.Fatal(err)
	}
	if err := os.WriteFile(path+".tmp", []byte(text), 0o644); err != nil {
		f.Fatal(err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		f.Fatal(err)
	}
	return path
}

func (f *faults) path(parts ...string) string {
	return filepath.Join(append([]string{f.n.Dir}, parts...)...)
}

// run applies a pod that asks for one of a resource, and tells DEVICE.
func (f *faults) run(name, resource string) {
	f.Helper()
	f.n.Apply(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q}, "spec": {"nodeName": %q, "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": %q,
		"imagePullPolicy": "Never", "resources": {"limits": {%q: 1}}, "command": ["sh", "-c", "echo has $DEVICE; trap 'exit 0' TERM; sleep 3600 & wait"]}]}}`, name, f.n.Name, busybox, resource))
}

// waits expects that a pod's container waits for a reason, and that its status and an event say all these words.
func (f *faults) waits(name, reason string, words ...string) {
	f.Helper()
	lacks := func(text string) string {
		for _, w := range words {
			if !strings.Contains(text, w) {
				return w
			}
		}
		return ""
	}
	harness.Eventually(f, "the status of pod "+name+" says why", func() (bool, string) {
		var p corev1.Pod
		getPod(f.T, f.n, name, &p)
		if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Waiting == nil {
			return false, fmt.Sprintf("%+v", p.Status)
		}
		w := p.Status.ContainerStatuses[0].State.Waiting
		return w.Reason == reason && lacks(w.Message) == "", fmt.Sprintf("%s: %s (lacks %q)", w.Reason, w.Message, lacks(w.Message))
	})
	harness.Eventually(f, "an event of pod "+name+" says why", func() (bool, string) {
		var list corev1.EventList
		if err := json.Unmarshal([]byte(f.n.Kubectl("get", "events", "--field-selector", "type=Warning,involvedObject.name="+name, "-o", "json")), &list); err != nil {
			f.Fatal(err)
		}
		var said []string
		for _, e := range list.Items {
			if lacks(e.Message) == "" {
				return true, ""
			}
			said = append(said, e.Reason+": "+e.Message)
		}
		return false, strings.Join(said, "\n")
	})
}

// runs expects that a pod runs with this device.
func (f *faults) runs(name, device string) {
	f.Helper()
	f.n.Kubectl("wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s")
	awaitLog(f.T, f.n, name, "has "+device)
}

// TestUnknownCDIKindIsTold: by the resource that nobody defines, and by the name that a plugin has answered with.
func TestUnknownCDIKindIsTold(t *testing.T) {
	f := newFaults(t, "vendor.example.com/card=c0")
	f.spec("other.json", "other.example.com/thing", "t0", `"env": ["DEVICE=t0"]`)
	f.run("asks", "vendor.example.com/widget")
	f.waits("asks", "DevicesNotReady", "vendor.example.com/widget is not ready: no device of this resource is defined", f.path("cdi"))
	f.run("answered", emulated)
	f.waits("answered", "CreateContainerError", "CDI device vendor.example.com/card=c0: no spec that can be used defines devices of kind vendor.example.com/card",
		"looked in "+f.path("cdi"), f.path("cdi", "other.json"))

	f.spec("widget.json", "vendor.example.com/widget", "w0", `"env": ["DEVICE=w0"]`)
	f.runs("asks", "w0")
	f.spec("card.json", "vendor.example.com/card", "c0", `"env": ["DEVICE=c0"]`)
	f.runs("answered", "c0")
}

// TestUnknownCDIDeviceIsTold: the kind has others, which are named. Who asks for more devices than there are hears how many there are.
func TestUnknownCDIDeviceIsTold(t *testing.T) {
	f := newFaults(t, "vendor.example.com/card=c7")
	f.spec("card.json", "vendor.example.com/card", "c0", `"env": ["DEVICE=c0"]`, "c1", `"env": ["DEVICE=c1"]`)
	f.run("answered", emulated)
	f.waits("answered", "CreateContainerError", `CDI device vendor.example.com/card=c7: kind vendor.example.com/card has no device "c7", it has c0, c1`, f.path("cdi", "card.json"))
	f.spec("card.json", "vendor.example.com/card", "c0", `"env": ["DEVICE=c0"]`, "c7", `"env": ["DEVICE=c7"]`)
	f.runs("answered", "c7")

	// A device that a pod has been granted, and that its file does not define any more.
	f.run("granted", "vendor.example.com/card")
	f.runs("granted", "c0")
	f.spec("card.json", "vendor.example.com/card", "c1", `"env": ["DEVICE=c1"]`, "c7", `"env": ["DEVICE=c7"]`)
	endContainer(f.n, "granted")
	f.waits("granted", "DevicesNotReady", `device "c0", which this container was granted, is not there any more`)
	f.spec("card.json", "vendor.example.com/card", "c0", `"env": ["DEVICE=c0 again"]`, "c7", `"env": ["DEVICE=c7"]`)
	f.runs("granted", "c0 again")
}

// TestConflictOfCDIFilesIsTold: both files are named, and whoever takes one away has the device of the other.
func TestConflictOfCDIFilesIsTold(t *testing.T) {
	f := newFaults(t, "vendor.example.com/card=c0")
	one := f.spec("one.json", "vendor.example.com/card", "c0", `"env": ["DEVICE=c0 of one"]`)
	two := f.spec("two.json", "vendor.example.com/card", "c0", `"env": ["DEVICE=c0 of two"]`, "c1", `"env": ["DEVICE=c1"]`)
	f.run("first", "vendor.example.com/card")
	f.runs("first", "c1") // the other devices of the file are not concerned
	f.run("second", "vendor.example.com/card")
	f.waits("second", "DevicesNotReady", "vendor.example.com/card is not ready", "vendor.example.com/card=c0", one, two)
	f.run("answered", emulated)
	f.waits("answered", "CreateContainerError", "CDI device vendor.example.com/card=c0: ", one, two)

	if err := os.Remove(two); err != nil {
		t.Fatal(err)
	}
	f.runs("answered", "c0 of one")
	f.n.Kubectl("delete", "pod", "answered", "--timeout=60s")
	f.runs("second", "c0 of one")
}

// TestMissingNodeOfACDIDeviceIsTold: the path that is missing is named, when a pod is to start and when its container is to start again.
func TestMissingNodeOfACDIDeviceIsTold(t *testing.T) {
	f := newFaults(t, "vendor.example.com/card=c0")
	card := f.path("card0")
	mknod := func() {
		t.Helper()
		if err := unix.Mknod(card, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
			t.Fatal(err)
		}
	}
	edits := fmt.Sprintf(`"env": ["DEVICE=c0"], "deviceNodes": [{"path": "/dev/card", "hostPath": %q}]`, card)
	file := f.spec("card.json", "vendor.example.com/card", "c0", edits)
	missing := card + " does not exist"
	f.run("asks", "vendor.example.com/card")
	f.waits("asks", "DevicesNotReady", "vendor.example.com/card is not ready", file, missing)
	mknod()
	f.runs("asks", "c0")

	if err := os.Remove(card); err != nil {
		t.Fatal(err)
	}
	endContainer(f.n, "asks")
	f.waits("asks", "DevicesNotReady", "a device that this container was granted cannot be used", file, missing)
	mknod()
	awaitRestarts(t, f.n, "asks", 1)
	f.runs("asks", "c0")
	f.n.Kubectl("delete", "pod", "asks", "--timeout=60s")

	// A plugin's answer is used as it was given: its container is not created.
	if err := os.Remove(card); err != nil {
		t.Fatal(err)
	}
	f.run("answered", emulated)
	f.waits("answered", "CreateContainerError", "CDI device vendor.example.com/card=c0: ", file, missing)
	mknod()
	f.runs("answered", "c0")
}

// TestFailingHookOfACDIDeviceIsTold: whose hook it was, its path and what it has said, whether it runs before the container's creation or after.
func TestFailingHookOfACDIDeviceIsTold(t *testing.T) {
	f := newFaults(t, "")
	for kind, reason := range map[string]string{"createRuntime": "CreateContainerError", "poststart": "RunContainerError"} {
		t.Run(kind, func(t *testing.T) {
			f := &faults{T: t, n: f.n}
			resource, name := "vendor.example.com/"+strings.ToLower(kind), strings.ToLower(kind)
			hook := func(script string) (path string) {
				return f.spec(kind+".json", resource, "h0", fmt.Sprintf(`"env": ["DEVICE=h0"], "hooks": [{"hookName": %q, "path": "/bin/sh", "args": ["sh", "-c", %q]}]`, kind, script))
			}
			path := hook("echo the card is on fire >&2; exit 3")
			f.run(name, resource)
			f.waits(name, reason, kind+" hook", "the card is on fire", resource+"=h0", path, "/bin/sh")
			hook("true")
			f.runs(name, "h0")
		})
	}
}

// TestADeviceNodeThatIsMountedToo: a plugin that answers with a node and a mount of the same file at the same path has said one thing; the container may use
// it. Where the pod has a volume of something else, both are named, and nothing is created.
func TestADeviceNodeThatIsMountedToo(t *testing.T) {
	f := newFaults(t, "")
	thing := f.path("thing")
	// A number for local use, without a driver: who may open it hears that nothing is there.
	if err := unix.Mknod(thing, unix.S_IFCHR|0o666, int(unix.Mkdev(240, 77))); err != nil {
		t.Fatal(err)
	}
	cfg := emulator.Config{Dir: f.n.PluginDir(), Resource: emulated, Devices: emulator.Devices(2, 0)}
	cfg.Hooks.Allocate = func(context.Context, []string) (*v1beta1.AllocateResponse, error) {
		return &v1beta1.AllocateResponse{ContainerResponses: []*v1beta1.ContainerAllocateResponse{{
			Mounts: []*v1beta1.Mount{{HostPath: thing, ContainerPath: "/dev/thing"}}, Devices: []*v1beta1.DeviceSpec{{HostPath: thing, ContainerPath: "/dev/thing", Permissions: "rw"}},
		}}}, nil
	}
	runPlugin(t, cfg)
	awaitResource(t, f.n, 2, 2)
	pod := func(name, volumes, mounts string) string {
		return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q}, "spec": {"nodeName": %q, "terminationGracePeriodSeconds": 0, "volumes": [%s], "containers": [{"name": "c",
			"image": %q, "imagePullPolicy": "Never", "resources": {"limits": {%q: 1}}, "volumeMounts": [%s], "command": ["sh", "-c", "cat /dev/thing 2>&1; exec sleep 3600"]}]}}`,
			name, f.n.Name, volumes, busybox, emulated, mounts)
	}
	f.n.Apply(pod("uses", "", ""))
	awaitLog(t, f.n, "uses", "No such device or address")
	f.n.Apply(pod("clashes", `{"name": "files", "emptyDir": {}}`, `{"name": "files", "mountPath": "/dev/thing/"}`))
	f.waits("clashes", "CreateContainerConfigError", "a device of the container ("+emulated+") brings ", thing, `to /dev/thing, where the pod mounts its volume "files": mount that elsewhere`)
}

// TestAnnotatedCDIDevicesThatAreIgnored: a plugin that asks by annotations alone gets its pod no container without devices from a node that ignores those;
// the pod says what helps, and has its device once that was done.
func TestAnnotatedCDIDevicesThatAreIgnored(t *testing.T) {
	f := &faults{T: t, n: harness.NewNode(t, harness.Options{})}
	f.n.Start("--ignore-cdi-annotations", "true")
	f.n.LoadImage(archive(t))
	f.spec("card.json", "k8s.vendor.example.com/card", "c0", `"env": ["DEVICE=c0"]`)
	cfg := emulator.Config{Dir: f.n.PluginDir(), Resource: emulated, Devices: emulator.Devices(2, 0)}
	cfg.Hooks.Allocate = func(context.Context, []string) (*v1beta1.AllocateResponse, error) {
		return &v1beta1.AllocateResponse{ContainerResponses: []*v1beta1.ContainerAllocateResponse{{Annotations: map[string]string{"cdi.k8s.io/card": "k8s.vendor.example.com/card=c0"}}}}, nil
	}
	runPlugin(t, cfg)
	awaitResource(t, f.n, 2, 2)
	f.run("p", emulated)
	f.waits("p", "DevicesNotReady", "by annotations cdi.k8s.io/... (k8s.vendor.example.com/card=c0)", "container runtime monopod", "runtime.ignoreCDIAnnotations")
	f.n.Kill()
	f.n.Start()
	f.runs("p", "c0")
}
