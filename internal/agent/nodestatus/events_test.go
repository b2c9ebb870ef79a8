package nodestatus

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/agent/pressure"
)

func TestChanges(t *testing.T) {
	status := func(boot string, s state) *v1.NodeStatus {
		return &v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{BootID: boot}, Conditions: conditions(s)}
	}
	well, full, broken := status("1", state{}), status("1", state{pressure: pressure.Shortages{Disk: "full"}}), status("1", state{fault: "no network"})
	for name, c := range map[string]struct {
		was, now *v1.NodeStatus
		want     string
	}{
		"new":          {&v1.NodeStatus{}, well, "NodeHasSufficientMemory NodeHasNoDiskPressure NodeHasSufficientPID NodeReady"},
		"new, not yet": {&v1.NodeStatus{}, broken, "NodeHasSufficientMemory NodeHasNoDiskPressure NodeHasSufficientPID"},
		"ready":        {broken, well, "NodeReady"},
		"not any more": {well, broken, "NodeNotReady"},
		"full":         {well, full, "NodeHasDiskPressure"},
		"empty again":  {full, well, "NodeHasNoDiskPressure"},
		"as ever":      {well, well, ""},
		"rebooted":     {well, status("2", state{}), "Rebooted"},
	} {
		var got []string
		for _, e := range changes("n", c.was, c.now) {
			got = append(got, e.reason)
			if e.kind != v1.EventTypeNormal && e.reason != "Rebooted" || e.reason != "Rebooted" && e.message != "Node n status is now: "+e.reason {
				t.Errorf("%s: %+v", name, e)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestCordonIsTold: an event tells that a node takes no pods, and that it does again.
func TestCordonIsTold(t *testing.T) {
	kube, w := fake.NewClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}}), &world{}
	recorder := record.NewFakeRecorder(100)
	_, stop := run(t, kube, w, func(c *Config) { c.Events, c.Ref = recorder, &v1.ObjectReference{Kind: "Node", Name: "n"} })
	defer stop()
	watched(t, kube)
	var told []string
	await := func(reason string) {
		t.Helper()
		for !slices.Contains(told, reason) {
			select {
			case e := <-recorder.Events:
				told = append(told, strings.Fields(e)[1])
			case <-time.After(time.Minute):
				t.Fatalf("told %q, not %s", told, reason)
			}
		}
	}
	await("Starting")
	await("NodeReady")
	for _, step := range []struct {
		off  bool
		want string
	}{{true, "NodeNotSchedulable"}, {false, "NodeSchedulable"}} {
		n := eventually(t, kube, "it is there", func(*v1.Node) bool { return true }).DeepCopy()
		n.Spec.Unschedulable = step.off
		if _, err := kube.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		await(step.want)
	}
}
