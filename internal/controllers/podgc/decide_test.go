package podgc

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDecide(t *testing.T) {
	now := time.Unix(1000, 0)
	healthy := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	silent := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}}}
	out := func(n *corev1.Node) *corev1.Node {
		n = n.DeepCopy()
		n.Spec.Taints = []corev1.Taint{{Key: "other"}, {Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
		return n
	}
	for name, c := range map[string]struct {
		on      string
		deleted bool
		node    *corev1.Node
		missing time.Duration
		why     cause
		again   time.Duration
	}{
		"waits for a node":                   {"", false, nil, 0, "", 0},
		"deleted before it had one":          {"", true, nil, 0, unscheduled, 0},
		"runs":                               {"n", false, healthy, 0, "", 0},
		"ends":                               {"n", true, healthy, 0, "", 0},
		"ends on a silent node":              {"n", true, silent, 0, "", 0},
		"ends on a dead node":                {"n", true, out(silent), 0, outOfService, 0},
		"is not deleted from a dead node":    {"n", false, out(silent), 0, "", 0},
		"ends on a node that is not so dead": {"n", true, out(healthy), 0, "", 0},
		"the node has just gone":             {"n", false, nil, 0, "", time.Minute},
		"the node has been gone for long":    {"n", false, nil, time.Minute, orphaned, 0},
		"the node has gone while it ends":    {"n", true, nil, 20 * time.Second, "", 40 * time.Second},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: c.on}}
		if c.deleted {
			pod.DeletionTimestamp = &metav1.Time{Time: now}
		}
		if why, again := decide(pod, c.node, now.Add(-c.missing), now, time.Minute); why != c.why || again != c.again {
			t.Errorf("%s: %q, again after %v, want %q after %v", name, why, again, c.why, c.again)
		}
	}
}

func TestMark(t *testing.T) {
	now := time.Unix(1000, 0)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: 3}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	st, changed := mark(pod, orphaned, now)
	if c := condition(st); !changed || st.Phase != corev1.PodFailed || c == nil || c.Status != corev1.ConditionTrue || c.Reason != "DeletionByPodGC" || c.ObservedGeneration != 3 {
		t.Errorf("orphaned: %v %+v", changed, st)
	}
	if _, changed := mark(&corev1.Pod{Status: *st}, orphaned, now); changed {
		t.Error("it is marked twice")
	}
	st, changed = mark(&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}, unscheduled, now)
	if changed || st.Phase != corev1.PodSucceeded {
		t.Errorf("one that has ended: %v %+v", changed, st)
	}
}
