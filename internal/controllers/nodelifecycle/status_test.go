package nodelifecycle

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodeWith makes a node of conditions like Ready=True.
func nodeWith(conditions ...string) *corev1.Node {
	n := &corev1.Node{}
	for _, c := range conditions {
		t, status, _ := strings.Cut(c, "=")
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeConditionType(t), Status: corev1.ConditionStatus(status)})
	}
	return n
}

func tell(taints []corev1.Taint) string {
	var all []string
	for _, t := range taints {
		all = append(all, strings.TrimPrefix(t.Key, "node.kubernetes.io/")+":"+string(t.Effect))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestTaints(t *testing.T) {
	const mine = "example.com/mine"
	unreachable := []corev1.Taint{
		{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}, {Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute},
	}
	foreign := []corev1.Taint{
		{Key: mine, Value: "v", Effect: corev1.TaintEffectNoExecute}, {Key: corev1.TaintNodeDiskPressure, Effect: corev1.TaintEffectNoExecute},
	}
	for name, c := range map[string]struct {
		node   *corev1.Node
		has    []corev1.Taint
		off    bool
		want   string
		differ bool
	}{
		"well":               {nodeWith("Ready=True", "MemoryPressure=False"), nil, false, "", false},
		"never posted":       {nodeWith(), nil, false, "", false},
		"not ready":          {nodeWith("Ready=False"), nil, false, "not-ready:NoExecute not-ready:NoSchedule", true},
		"unknown":            {nodeWith("Ready=Unknown", "MemoryPressure=Unknown"), nil, false, "unreachable:NoExecute unreachable:NoSchedule", true},
		"unknown as ever":    {nodeWith("Ready=Unknown"), unreachable, false, "unreachable:NoExecute unreachable:NoSchedule", false},
		"back, not ready":    {nodeWith("Ready=False"), unreachable, false, "not-ready:NoExecute not-ready:NoSchedule", true},
		"back":               {nodeWith("Ready=True"), unreachable, false, "", true},
		"short of all":       {nodeWith("Ready=True", "MemoryPressure=True", "DiskPressure=True", "PIDPressure=True", "NetworkUnavailable=True"), nil, false, "disk-pressure:NoSchedule memory-pressure:NoSchedule network-unavailable:NoSchedule pid-pressure:NoSchedule", true},
		"cordoned":           {nodeWith("Ready=True"), nil, true, "unschedulable:NoSchedule", true},
		"uncordoned":         {nodeWith("Ready=True"), []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}, false, "", true},
		"others' are theirs": {nodeWith("Ready=True"), foreign, false, "disk-pressure:NoExecute example.com/mine:NoExecute", false},
	} {
		t.Run(name, func(t *testing.T) {
			c.node.Spec.Taints, c.node.Spec.Unschedulable = c.has, c.off
			got, differ := taints(c.node, metav1.Now())
			if tell(got) != c.want || differ != c.differ {
				t.Errorf("%s, differ %v, want %s, %v", tell(got), differ, c.want, c.differ)
			}
			for _, taint := range got {
				if added := !slices.Contains(c.has, taint); added != (taint.TimeAdded != nil) {
					t.Errorf("%+v has a time of addition: %v", taint, !added)
				}
			}
		})
	}
}

func TestSilence(t *testing.T) {
	now := metav1.Now()
	for _, c := range []struct {
		node     *corev1.Node
		wasReady bool
		want     string
	}{
		{nodeWith("Ready=True", "MemoryPressure=False", "NetworkUnavailable=False", "DiskPressure=Unknown"), true,
			"Ready=Unknown NodeStatusUnknown, MemoryPressure=Unknown NodeStatusUnknown, NetworkUnavailable=False , DiskPressure=Unknown , PIDPressure=Unknown NodeStatusNeverUpdated"},
		{nodeWith("Ready=False"), false,
			"Ready=Unknown NodeStatusUnknown, MemoryPressure=Unknown NodeStatusNeverUpdated, DiskPressure=Unknown NodeStatusNeverUpdated, PIDPressure=Unknown NodeStatusNeverUpdated"},
	} {
		was := silence(c.node, now)
		var got []string
		for _, cond := range c.node.Status.Conditions {
			got = append(got, fmt.Sprintf("%s=%s %s", cond.Type, cond.Status, cond.Reason))
		}
		if s := strings.Join(got, ", "); s != c.want || was != c.wasReady || !allUnknown(&c.node.Status) {
			t.Errorf("%s, was ready: %v; want %s, %v", s, was, c.want, c.wasReady)
		}
	}
}

// TestHearing: whatever is new counts from when it was seen, however old it says that it is.
func TestHearing(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ready, fresh, unknown := nodeWith("Ready=True"), nodeWith(), nodeWith("Ready=Unknown", "MemoryPressure=Unknown", "DiskPressure=Unknown", "PIDPressure=Unknown")
	lease := func(second int) *coordinationv1.Lease {
		renewed := metav1.NewMicroTime(time.Date(2001, 1, 1, 0, 0, second, 0, time.UTC)) // its clock is wrong, or the controller was away
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}
	}
	v := &vitals{}
	for i, c := range []struct {
		after time.Duration
		node  *corev1.Node
		lease *coordinationv1.Lease
		left  time.Duration
	}{
		{0, fresh, nil, startupGrace},
		{10 * time.Second, fresh, nil, startupGrace - 10*time.Second},
		{10 * time.Second, ready, nil, monitorGrace},
		{10 * time.Second, ready, lease(1), monitorGrace},
		{40 * time.Second, ready, lease(1), 10 * time.Second},
		{9 * time.Second, ready, lease(2), monitorGrace},
		{50 * time.Second, ready, lease(2), 0},
		{time.Hour, ready, lease(2), 0},
		{0, unknown, lease(2), -1},
		{time.Hour, ready, lease(2), monitorGrace},
	} {
		now = now.Add(c.after)
		v.hear(pulseOf(c.node, c.lease), now)
		if left := v.left(c.node, now); left != c.left {
			t.Errorf("step %d: %s left, want %s", i, left, c.left)
		}
	}
}
