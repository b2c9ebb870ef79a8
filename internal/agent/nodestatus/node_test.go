package nodestatus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"monopod.dev/monopod/internal/agent/pressure"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/host/usage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is what a reporter is told.
type world struct {
	mu      sync.Mutex // guards what follows
	devices map[string]inventory.Quantity
	fault   string
	err     error
}

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) Devices() map[string]inventory.Quantity {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.devices
}

func (w *world) Fault(context.Context) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fault, w.err
}

// run runs a reporter until stop is called.
func run(t *testing.T, kube *fake.Clientset, w *world, change ...func(*Config)) (r *Reporter, stop func()) {
	t.Helper()
	cfg := Config{
		Client: kube, NodeName: "n", Addresses: []string{"10.1.2.3", "fd00::3"}, Port: 10250, MaxPods: 7, Version: "v1.0.0", DataDir: t.TempDir(),
		Fault: w.Fault, Devices: w.Devices, RuntimeVersion: func() string { return "rt://1" }, Log: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&cfg)
	}
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	return r, func() { cancel(); <-done }
}

func eventually(t *testing.T, kube *fake.Clientset, what string, ok func(*v1.Node) bool) *v1.Node {
	t.Helper()
	var node *v1.Node
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		var err error
		if node, err = kube.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{}); err == nil && ok(node) {
			return node
		}
	}
	t.Fatalf("still not: %s; the node is %+v", what, node)
	return nil
}

func ready(n *v1.Node) *v1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == v1.NodeReady {
			return &n.Status.Conditions[i]
		}
	}
	return &v1.NodeCondition{}
}

func TestReadiness(t *testing.T) {
	kube, w := fake.NewClientset(), &world{fault: "NetworkReady=false"}
	r, stop := run(t, kube, w)
	defer stop()
	n := eventually(t, kube, "it says why it is not ready", func(n *v1.Node) bool { return ready(n).Message == "NetworkReady=false" })
	if ready(n).Status != v1.ConditionFalse || len(n.Status.Conditions) != 4 {
		t.Errorf("conditions %+v", n.Status.Conditions)
	}
	select {
	case <-r.Ready():
		t.Error("it announces that it is ready")
	default:
	}
	// Nobody tells when the runtime gets ready.
	w.set(func() { w.fault = "" })
	eventually(t, kube, "ready", func(n *v1.Node) bool { return ready(n).Status == v1.ConditionTrue })
	<-r.Ready()
	w.set(func() { w.err = errors.New("connection refused") })
	r.Changed()
	eventually(t, kube, "not ready again", func(n *v1.Node) bool { return ready(n).Status == v1.ConditionFalse })
}

func TestForeignParts(t *testing.T) {
	theirs := resource.MustParse("5")
	kube, w := fake.NewClientset(&v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"x": "y"}, Annotations: map[string]string{"a": "b"}},
		Spec:       v1.NodeSpec{PodCIDR: "10.0.0.0/24", Taints: []v1.Taint{{Key: "t", Effect: v1.TaintEffectNoSchedule}}},
		Status: v1.NodeStatus{
			Capacity: v1.ResourceList{"example.com/dongle": theirs}, Allocatable: v1.ResourceList{"example.com/dongle": theirs},
			Conditions: []v1.NodeCondition{{Type: "example.com/Fine", Status: v1.ConditionTrue}},
		},
	}), &world{}
	r, stop := run(t, kube, w)
	defer stop()
	<-r.Ready()
	n := eventually(t, kube, "ready", func(n *v1.Node) bool { return ready(n).Status == v1.ConditionTrue })
	dongles := n.Status.Capacity["example.com/dongle"]
	if n.Labels["x"] != "y" || n.Annotations["a"] != "b" || n.Spec.PodCIDR == "" || len(n.Spec.Taints) != 1 || len(n.Status.Conditions) != 5 || dongles.Value() != 5 {
		t.Errorf("what others have written is gone: %+v", n)
	}
	for _, label := range []string{v1.LabelOSStable, "beta.kubernetes.io/os"} {
		if n.Labels[label] != "linux" {
			t.Errorf("label %s is %q", label, n.Labels[label])
		}
	}
	host, err := usage.Read()
	if swap := int64(host.Swap.Total); err != nil || (swap > 0) != (n.Status.NodeInfo.Swap != nil) || swap > 0 && *n.Status.NodeInfo.Swap.Capacity != swap {
		t.Errorf("swap %+v of %d bytes, %v", n.Status.NodeInfo.Swap, swap, err)
	}
	if n.Labels[v1.LabelHostname] != "n" || len(n.Status.Addresses) != 3 || n.Status.Addresses[0].Address != "10.1.2.3" || n.Status.Addresses[1] != (v1.NodeAddress{Type: v1.NodeInternalIP, Address: "fd00::3"}) || n.Status.Capacity.Pods().Value() != 7 {
		t.Errorf("what is the agent's is missing: %+v", n)
	}
}

// TestResourcesOfOthers: what somebody writes to the node's capacity can be had as soon as he has, stays over the agent's own writes and starts, and goes when
// he takes it away.
func TestResourcesOfOthers(t *testing.T) {
	kube, w := fake.NewClientset(), &world{devices: map[string]inventory.Quantity{"v/a": {Capacity: 1, Allocatable: 1}}}
	amounts := func(dongles, v int64) func(*v1.Node) bool {
		return func(n *v1.Node) bool {
			for name, want := range map[v1.ResourceName]int64{"example.com/dongle": dongles, "v/a": v} {
				for _, list := range []v1.ResourceList{n.Status.Capacity, n.Status.Allocatable} {
					if q, has := list[name]; has != (want > 0) || q.Value() != want {
						return false
					}
				}
			}
			return true
		}
	}
	// patch is what the page "Advertise Extended Resources for a Node" does.
	patch := func(op, value string) {
		t.Helper()
		body := fmt.Sprintf(`[{"op": %q, "path": "/status/capacity/example.com~1dongle", "value": %q}]`, op, value)
		if _, err := kube.CoreV1().Nodes().Patch(t.Context(), "n", types.JSONPatchType, []byte(body), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	counted := func(r *Reporter, want int64) {
		t.Helper()
		q, has := r.Counted()["example.com/dongle"]
		if has != (want > 0) || q.Value() != want || len(r.Counted()) > 1 {
			t.Errorf("it counts %v, want %d dongles", r.Counted(), want)
		}
	}
	r, stop := run(t, kube, w)
	<-r.Ready()
	eventually(t, kube, "the devices are told", amounts(0, 1))
	patch("add", "4")
	eventually(t, kube, "what was written can be had", amounts(4, 1))
	<-r.Recounted()
	counted(r, 4)
	w.set(func() { w.devices = map[string]inventory.Quantity{"v/a": {Capacity: 2, Allocatable: 2}} })
	r.Changed()
	eventually(t, kube, "it stays when devices change", amounts(4, 2))
	stop()
	r, stop = run(t, kube, w)
	<-r.Ready()
	eventually(t, kube, "it stays over a start", amounts(4, 2))
	counted(r, 4)
	patch("replace", "5")
	eventually(t, kube, "more of it", amounts(5, 2))
	patch("remove", "")
	eventually(t, kube, "it goes", amounts(0, 2))
	counted(r, 0)
	stop()
	// What a device was is nobody's to count.
	w.set(func() {
		w.devices = map[string]inventory.Quantity{"example.com/dongle": {Capacity: 3, Allocatable: 3}, "v/a": {Capacity: 1, Allocatable: 1}}
	})
	r, stop = run(t, kube, w)
	defer stop()
	eventually(t, kube, "it is a device now", amounts(3, 1))
	counted(r, 0)
}

// What is reserved, and what the kernel keeps as huge pages, is not for pods; more than there is cannot be reserved.
func TestReserved(t *testing.T) {
	q := resource.MustParse
	r := &Reporter{cfg: Config{NodeName: "n", MaxPods: 7, Reserved: v1.ResourceList{"cpu": q("1200m"), "memory": q("100Mi"), "ephemeral-storage": q("1Gi")}}}
	m := Machine{Resources: v1.ResourceList{"cpu": q("2"), "memory": q("1Gi"), "ephemeral-storage": q("10Gi"), "hugepages-2Mi": q("64Mi"), "hugepages-1Gi": q("0")}}
	st := r.apply(v1.NodeStatus{}, state{machine: m})
	for name, want := range map[v1.ResourceName]string{"cpu": "800m", "memory": "860Mi", "ephemeral-storage": "9Gi", "hugepages-2Mi": "64Mi", "pods": "7"} {
		if have := st.Allocatable[name]; have.Cmp(q(want)) != 0 {
			t.Errorf("of %s %s can be had, want %s", name, have.String(), want)
		}
	}
	if have := st.Capacity["memory"]; have.Cmp(q("1Gi")) != 0 {
		t.Errorf("the machine has %s of memory", have.String())
	}
	m.Resources["hugepages-1Gi"] = q("1Gi")
	if have := r.apply(v1.NodeStatus{}, state{machine: m}).Allocatable["memory"]; !have.IsZero() {
		t.Errorf("%s of memory that is not there", have.String())
	}
	if err := m.canSpare(v1.ResourceList{"cpu": q("3"), "memory": q("1Mi")}); err == nil || !strings.Contains(err.Error(), "3 of cpu is reserved") || strings.Contains(err.Error(), "memory") {
		t.Errorf("3 of 2 processors are reserved: %v", err)
	}
}

// Pods are admitted to the node with the labels and taints that others have set.
func TestNodeOfAdmission(t *testing.T) {
	kube, w := fake.NewClientset(), &world{}
	yes := true
	r, stop := run(t, kube, w, func(c *Config) {
		c.Features = func() (*v1.NodeFeatures, []v1.NodeRuntimeHandler) {
			return &v1.NodeFeatures{SupplementalGroupsPolicy: &yes}, []v1.NodeRuntimeHandler{{Name: "native"}}
		}
	})
	defer stop()
	<-r.Ready()
	n := eventually(t, kube, "features", func(n *v1.Node) bool { return n.Status.Features != nil && len(n.Status.RuntimeHandlers) == 1 })
	n.Labels["disk"], n.Spec.Taints = "ssd", []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoExecute}}
	if _, err := kube.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	fresh, err := r.Fresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); r.Node().Labels["disk"] == "" && time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
	}
	for name, got := range map[string]*v1.Node{"fresh": fresh, "known": r.Node()} {
		if got.Labels["disk"] != "ssd" || len(got.Spec.Taints) != 1 || got.Status.NodeInfo.OperatingSystem != "linux" || !*got.Status.Features.SupplementalGroupsPolicy ||
			got.Status.Allocatable.Pods().Value() != 7 || got.Status.Allocatable.Cpu().IsZero() {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestDevicesGo: a device resource that was taken away goes, also when that happened while the agent was not running.
func TestDevicesGo(t *testing.T) {
	kube, w := fake.NewClientset(), &world{devices: map[string]inventory.Quantity{"v/a": {Capacity: 1, Allocatable: 1}, "v/b": {Capacity: 2, Allocatable: 1}, "v/c": {Capacity: 3}}}
	has := func(names ...v1.ResourceName) func(*v1.Node) bool {
		return func(n *v1.Node) bool {
			found := 0
			for name := range n.Status.Allocatable {
				if name == "v/a" || name == "v/b" || name == "v/c" {
					found++
				}
			}
			for _, name := range names {
				if _, ok := n.Status.Allocatable[name]; !ok {
					return false
				}
			}
			return found == len(names)
		}
	}
	r, stop := run(t, kube, w)
	eventually(t, kube, "all are there", has("v/a", "v/b", "v/c"))
	eventually(t, kube, "those that are not healthy are capacity", func(n *v1.Node) bool {
		c, a := n.Status.Capacity["v/b"], n.Status.Allocatable["v/b"]
		return c.Value() == 2 && a.Value() == 1
	})
	w.set(func() {
		w.devices = map[string]inventory.Quantity{"v/b": {Capacity: 2, Allocatable: 1}, "v/c": {Capacity: 3}}
	})
	r.Changed()
	eventually(t, kube, "a is gone", has("v/b", "v/c"))
	stop()
	w.set(func() { w.devices = map[string]inventory.Quantity{"v/c": {Capacity: 4, Allocatable: 3}} })
	r, stop = run(t, kube, w)
	defer stop()
	eventually(t, kube, "b is gone", has("v/c"))
	if q := r.Allocatable()["v/c"]; q.Value() != 3 {
		t.Errorf("allocatable %v", r.Allocatable())
	}
}

// TestWhatIsWrongWithDevices is an annotation of the Node, as long as something is, and no longer than it may be.
func TestWhatIsWrongWithDevices(t *testing.T) {
	kube, w := fake.NewClientset(), &world{devices: map[string]inventory.Quantity{"v/a": {Capacity: 1}, "v/b": {Capacity: 1}}}
	faults := map[string]string{"v/a": "it is gone"}
	r, stop := run(t, kube, w, func(c *Config) {
		c.Faults = func() map[string]string {
			w.mu.Lock()
			defer w.mu.Unlock()
			return faults
		}
	})
	defer stop()
	says := func(want string) {
		t.Helper()
		eventually(t, kube, "it says "+want, func(n *v1.Node) bool {
			_, is := n.Annotations[annotationFaults]
			return n.Annotations[annotationFaults] == want && is == (want != "") && n.Annotations[annotationDevices] == "v/a,v/b"
		})
	}
	says(`{"v/a":"it is gone"}`)
	w.set(func() { faults = map[string]string{"v/b": strings.Repeat("ä", 300)} })
	r.Changed()
	says(`{"v/b":"` + strings.Repeat("ä", 200) + `..."}`)
	w.set(func() { faults = nil })
	r.Changed()
	says("")
	many := map[string]string{}
	for i := range 1000 {
		many[fmt.Sprintf("v/%d", i)] = strings.Repeat("x", 300)
	}
	if size := len(faultsOf(many)); size < mostOfFaults/2 || size > 2*mostOfFaults {
		t.Errorf("it says %d bytes", size)
	}
}

func TestQuiet(t *testing.T) {
	kube, w := fake.NewClientset(), &world{}
	r, stop := run(t, kube, w)
	<-r.Ready()
	for range 20 {
		r.Changed()
		time.Sleep(time.Millisecond) //nolint:forbidigo // changes that come one by one are what it plays
	}
	stop()
	writes := 0
	for _, a := range kube.Actions() {
		if v := a.GetVerb(); v != "get" && v != "list" && v != "watch" {
			writes++
		}
	}
	// The object's creation, and its status.
	if writes > 2 {
		t.Errorf("%d writes though nothing has changed: %v", writes, kube.Actions())
	}
}

func TestPressure(t *testing.T) {
	for _, c := range conditions(state{pressure: pressure.Shortages{Disk: "full"}}) {
		if (c.Type == v1.NodeDiskPressure || c.Type == v1.NodeReady) != (c.Status == v1.ConditionTrue) {
			t.Errorf("%s is %s: %s", c.Type, c.Status, c.Message)
		}
	}
}
