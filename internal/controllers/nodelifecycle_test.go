package controllers_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"monopod.dev/monopod/internal/controllers/nodelifecycle"
	"monopod.dev/monopod/internal/pods"
	"monopod.dev/monopod/test/apitest"
)

// lifecycles is an API server with the controller, whose time passes when it is told to.
type lifecycles struct {
	*apitest.API
	clock  *clocktesting.FakeClock
	events *record.FakeRecorder
}

func startLifecycles(t *testing.T) lifecycles {
	c := lifecycles{apitest.Start(t), clocktesting.NewFakeClock(time.Now()), record.NewFakeRecorder(100)}
	factory := informers.NewSharedInformerFactory(c.Client, 0)
	controller, err := nodelifecycle.New(nodelifecycle.Config{
		Client: c.Client, Nodes: factory.Core().V1().Nodes(), Pods: factory.Core().V1().Pods(), Events: c.events, Clock: c.clock,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	factory.StartWithContext(ctx)
	ended := make(chan error, 1)
	go func() { ended <- controller.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		factory.Shutdown()
	})
	return c
}

// node waits until a node is as wanted. While it waits, time passes in steps; 0: it stands still.
func (c lifecycles) node(name, what string, step time.Duration, wanted func(*corev1.Node) bool) *corev1.Node {
	c.Helper()
	var node *corev1.Node
	for end := time.Now().Add(apitest.Timeout); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		var err error
		if node, err = c.Client.CoreV1().Nodes().Get(c.Context(), name, metav1.GetOptions{}); err != nil {
			c.Fatal(err)
		}
		if wanted(node) {
			return node
		}
		c.clock.Step(step)
	}
	c.Fatalf("node %s does not become %s: %+v", name, what, node)
	return nil
}

// say writes a node's conditions, Ready=True, as its agent does.
func (c lifecycles) say(name string, conditions ...string) {
	c.Helper()
	node, err := c.Client.CoreV1().Nodes().Get(c.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	node.ResourceVersion = ""
	node.Status.Conditions = nil
	for _, one := range conditions {
		t, status, _ := strings.Cut(one, "=")
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type: corev1.NodeConditionType(t), Status: corev1.ConditionStatus(status), LastHeartbeatTime: metav1.Now(), Reason: "KubeletSays",
		})
	}
	if _, err := c.Client.CoreV1().Nodes().UpdateStatus(c.Context(), node, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
}

var wellConditions = []string{"MemoryPressure=False", "DiskPressure=False", "PIDPressure=False", "Ready=True"}

func tainted(want ...string) func(*corev1.Node) bool {
	return func(n *corev1.Node) bool {
		var got []string
		for _, t := range n.Spec.Taints {
			got = append(got, strings.TrimPrefix(t.Key, "node.kubernetes.io/")+":"+string(t.Effect))
		}
		slices.Sort(got)
		return slices.Equal(got, want)
	}
}

func (c lifecycles) create(name string, conditions ...string) {
	c.Helper()
	if _, err := c.Client.CoreV1().Nodes().Create(c.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	if len(conditions) > 0 {
		c.say(name, conditions...)
	}
}

// readyPod makes a pod on a node that is ready, and waits until the controller could know.
func (c lifecycles) readyPod(name, node string) {
	c.Helper()
	all := c.Client.CoreV1().Pods("default")
	pod, err := all.Create(c.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "x"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	pods.SetCondition(&pod.Status, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}, time.Now())
	if _, err := all.UpdateStatus(c.Context(), pod, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
}

func (c lifecycles) awaitNotReady(name string) {
	c.Helper()
	for end := time.Now().Add(apitest.Timeout); ; time.Sleep(2 * time.Millisecond) {
		pod, err := c.Client.CoreV1().Pods("default").Get(c.Context(), name, metav1.GetOptions{})
		if err != nil {
			c.Fatal(err)
		}
		if !pods.IsTrue(&pod.Status, corev1.PodReady) {
			return
		}
		if time.Now().After(end) {
			c.Fatalf("pod %s stays ready: %+v", name, pod.Status)
		}
	}
}

func (c lifecycles) told(want string) {
	c.Helper()
	for {
		select {
		case e := <-c.events.Events:
			if e == want {
				return
			}
		case <-time.After(apitest.Timeout):
			c.Fatalf("no event tells %q", want)
		}
	}
}

// TestAnAgentDies: it is found out when its time is over, and forgotten when it is back.
func TestAnAgentDies(t *testing.T) {
	c := startLifecycles(t)
	c.create("n1", wellConditions...)
	c.readyPod("p", "n1")
	renewed := metav1.NowMicro()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}
	if _, err := c.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	n := c.node("n1", "unreachable", 10*time.Second, tainted("unreachable:NoExecute", "unreachable:NoSchedule"))
	for _, cond := range n.Status.Conditions {
		if cond.Status != corev1.ConditionUnknown || cond.Reason != "NodeStatusUnknown" || cond.Message != "Kubelet stopped posting node status." || cond.LastTransitionTime.IsZero() {
			t.Errorf("condition %+v", cond)
		}
	}
	c.told("Normal NodeNotReady Node n1 status is now: NodeNotReady")
	c.awaitNotReady("p")
	c.told("Warning NodeNotReady Node is not ready")
	// One that says so afterwards has its turn, too.
	c.readyPod("late", "n1")
	c.awaitNotReady("late")

	c.say("n1", wellConditions...)
	c.node("n1", "free of taints", 0, tainted())
	c.say("n1", append([]string{"Ready=False"}, wellConditions[:3]...)...)
	c.node("n1", "not ready", 0, tainted("not-ready:NoExecute", "not-ready:NoSchedule"))
	c.node("n1", "unreachable again", 10*time.Second, tainted("unreachable:NoExecute", "unreachable:NoSchedule"))
}

// TestANodeThatNeverWas: somebody has made a Node, and no agent has come.
func TestANodeThatNeverWas(t *testing.T) {
	c := startLifecycles(t)
	c.create("n1")
	n := c.node("n1", "unreachable", 10*time.Second, tainted("unreachable:NoExecute", "unreachable:NoSchedule"))
	if len(n.Status.Conditions) != 4 {
		t.Errorf("conditions %+v", n.Status.Conditions)
	}
	for _, cond := range n.Status.Conditions {
		if cond.Status != corev1.ConditionUnknown || cond.Reason != "NodeStatusNeverUpdated" || cond.Message != "Kubelet never posted node status." {
			t.Errorf("condition %+v", cond)
		}
	}
}

// TestAnAgentThatRenews: as long as a lease is renewed, no time is too long.
func TestAnAgentThatRenews(t *testing.T) {
	c := startLifecycles(t)
	c.create("n1", wellConditions...)
	leases := c.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		// Whether the watch has shown it or not: the lease is read before the node is given up.
		renewed := metav1.NewMicroTime(time.Date(2001, 1, 1, 0, 0, i, 0, time.UTC))
		lease.Spec.RenewTime = &renewed
		if lease, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.clock.Step(40 * time.Second)
		// The taint of a cordon shows that the controller has looked.
		off := i%2 == 0
		patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%v}}`, off)
		if _, err := c.Client.CoreV1().Nodes().Patch(t.Context(), "n1", "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		want := tainted()
		if off {
			want = tainted("unschedulable:NoSchedule")
		}
		n := c.node("n1", "as wanted", 0, want)
		if s := n.Status.Conditions[3].Status; s != corev1.ConditionTrue {
			t.Fatalf("after %d renewals the node is given up: %+v", i, n.Status.Conditions)
		}
	}
}
