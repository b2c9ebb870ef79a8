package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/agent/nodestatus"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/cgroup/place"
)

// What pods are admitted by is the machine, less what is reserved, and their cgroups are below the node's.
func TestNodeResources(t *testing.T) {
	host, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	root := fmt.Sprintf("/mp-test-agent-%d", os.Getpid())
	defer func() {
		if err := host.RemoveTree(root); err != nil {
			t.Error(err)
		}
	}()
	kube := fake.NewClientset()
	reporter, err := nodestatus.New(nodestatus.Config{
		Client: kube, NodeName: "n", MaxPods: 2, DataDir: t.TempDir(), Reserved: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")},
		Fault: func(context.Context) (string, error) { return "", nil }, RuntimeVersion: func() string { return "" },
		Devices: func() map[string]inventory.Quantity { return nil }, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kube.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"disk": "ssd"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	a := &Agent{cfg: Config{CgroupRoot: root, Resources: Resources{Enforce: true}}, log: slog.New(slog.DiscardHandler)}
	r := a.newNodeResources(t.Context(), resourceWorld{
		host: host, node: reporter, pods: func() []*v1.Pod { return nil }, synced: func() bool { return true }, cgroupDriver: func() place.Driver { return place.Cgroupfs },
	})
	pod := func(uid, cpu string) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: uid}, Spec: v1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}}}
		p.UID = p.UID + "u"
		p.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}}}
		return p
	}
	allocatable := reporter.Allocatable()
	whole := allocatable.Cpu().MilliValue() + 100
	if refusal := r.ledger.Take(pod("big", fmt.Sprintf("%dm", whole)), false); refusal == nil || refusal.Reason != "OutOfcpu" {
		t.Errorf("all of the machine, of which a part is reserved: %+v", refusal)
	}
	if refusal := r.ledger.Take(pod("small", "500m"), false); refusal != nil {
		t.Errorf("%+v", refusal)
	}
	if err := r.cgroups.Ensure(pod("small", "500m")); err != nil {
		t.Fatal(err)
	}
	if uids, err := r.cgroups.UIDs(); err != nil || len(uids) != 1 {
		t.Errorf("%q, %v", uids, err)
	}
	events := record.NewFakeRecorder(1)
	r.enforce(t.Context(), events, &v1.ObjectReference{Kind: "Node", Name: "n"})
	if e := <-events.Events; !strings.Contains(e, "Normal NodeAllocatableEnforced") {
		t.Error(e)
	}
	l := r.limits()
	if l.AllocatableMemory != allocatable.Memory().Value() || l.Memory < l.AllocatableMemory || l.PageSize == 0 || l.KillAll != l.CgroupV2 || l.LimitedSwap {
		t.Errorf("%+v", l)
	}
	if err := r.cgroups.Remove("u"); err != nil {
		t.Error(err)
	}
}
