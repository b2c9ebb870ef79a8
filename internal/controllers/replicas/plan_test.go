package replicas

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// pod is one on node n that has been ready for as many minutes; below 0: it is not ready.
func pod(name string, ready int, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), Labels: map[string]string{"app": "a"}, CreationTimestamp: metav1.NewTime(now.Add(-24 * time.Hour)),
		},
		Spec:   corev1.PodSpec{NodeName: "n"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if ready >= 0 {
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Duration(ready) * time.Minute)),
		}}
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func phase(of corev1.PodPhase) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Phase = of } }
func node(name string) func(*corev1.Pod)         { return func(p *corev1.Pod) { p.Spec.NodeName = name } }
func restarts(n int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: n}} }
}
func ending(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }
func cost(n string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.PodDeletionCost: n} }
}
func labelled(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[key] = value }
}
func age(hours int) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(now.Add(-time.Duration(hours) * time.Hour)) }
}

func restartedSidecar(n int32) func(*corev1.Pod) {
	always := corev1.ContainerRestartPolicyAlways
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "i"}, {Name: "s", RestartPolicy: &always}}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "i", RestartCount: 9}, {Name: "s", RestartCount: n}}
	}
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		name                string
		replicas, available int32
		pods                []*corev1.Pod
		want                string
	}{
		{"none yet", 3, 0, nil, "create 3; 0 of 0 labelled, 0 ready, 0 available, 0 ending"},
		{"a thousand", 1000, 0, nil, "create 500; 0 of 0 labelled, 0 ready, 0 available, 0 ending"},
		{"as it should be", 2, 0, []*corev1.Pod{pod("a", 1), pod("b", -1)}, "; 2 of 2 labelled, 1 ready, 1 available, 0 ending"},
		{"who ends or has ended is replaced", 2, 0, []*corev1.Pod{pod("a", 1), pod("b", 1, ending), pod("c", -1, phase("Failed")), pod("d", -1, phase("Succeeded"), ending)},
			"create 1; 1 of 1 labelled, 1 ready, 1 available, 1 ending"},
		{"too many", 1, 0, []*corev1.Pod{pod("a", 1), pod("b", -1), pod("c", 90)}, "delete b a; 3 of 3 labelled, 2 ready, 2 available, 0 ending"},
		{"none is wanted", 0, 0, []*corev1.Pod{pod("a", 1)}, "delete a; 1 of 1 labelled, 1 ready, 1 available, 0 ending"},
		{"available later", 2, 300, []*corev1.Pod{pod("a", 1), pod("b", 6), pod("c", 4)}, "delete a; 3 of 3 labelled, 3 ready, 1 available, 0 ending; again in 1m0s"},
		{"a label of the template is missing", 1, 0, []*corev1.Pod{pod("a", 1, labelled("app", "b"))}, "; 0 of 1 labelled, 1 ready, 1 available, 0 ending"},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := Wanted{Replicas: c.replicas, MinReadySeconds: c.available, Template: &corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}},
			}}
			p := Decide(want, c.pods, c.pods, now)
			s := ""
			if p.Create > 0 {
				s = fmt.Sprintf("create %d", p.Create)
			}
			if len(p.Delete) > 0 {
				s = "delete " + names(p.Delete)
			}
			s += fmt.Sprintf("; %d of %d labelled, %d ready, %d available, %d ending", p.Counts.FullyLabeled, p.Counts.Replicas, p.Counts.Ready, p.Counts.Available, p.Counts.Terminating)
			if p.Again > 0 {
				s += fmt.Sprintf("; again in %v", p.Again)
			}
			if s != c.want {
				t.Errorf("got  %s\nwant %s", s, c.want)
			}
		})
	}
}

func names(pods []*corev1.Pod) string {
	var all []string
	for _, p := range pods {
		all = append(all, p.Name)
	}
	return strings.Join(all, " ")
}

// TestRank: of two pods the one goes first that the rules name first, however much speaks for the other one by later rules.
func TestRank(t *testing.T) {
	for _, c := range []struct {
		rule        string
		first, then *corev1.Pod
		neighbours  []*corev1.Pod
	}{
		{"without a node", pod("z", 90, node(""), cost("5")), pod("a", -1, phase("Pending")), nil},
		{"Pending", pod("z", -1, phase("Pending"), cost("5")), pod("a", -1, phase("Unknown")), nil},
		{"Unknown", pod("z", -1, phase("Unknown"), cost("5")), pod("a", -1, restarts(5)), nil},
		{"not ready", pod("z", -1, cost("5")), pod("a", 0, restarts(5)), nil},
		{"cost", pod("z", 90, cost("-5")), pod("a", 0, restarts(5)), nil},
		{"no cost is 0", pod("z", 90), pod("a", 0, cost("1")), nil},
		{"a cost that is none is 0", pod("z", 0, cost("cheap")), pod("a", 90), nil},
		{"neighbours", pod("z", 90), pod("a", 0, node("m")), []*corev1.Pod{pod("x", 1), pod("y", 1), pod("w", 1, node("m"))}},
		{"neighbours that are not ready do not count", pod("z", 0), pod("a", 90, node("m")), []*corev1.Pod{pod("y", 1, ending), pod("w", -1, node("m"))}},
		{"ready for a shorter time", pod("z", 1, age(30)), pod("a", 90, restarts(5)), nil},
		{"a little older is as old", pod("a", 80, restarts(1)), pod("z", 75), nil},
		{"restarts", pod("z", 80, restarts(2), age(40)), pod("a", 80, restarts(1), restartedSidecar(8)), nil},
		{"restarts of a sidecar", pod("z", 80, restartedSidecar(2), age(40)), pod("a", 80, restartedSidecar(1)), nil},
		{"younger", pod("z", 80, age(2)), pod("a", 80, age(40)), nil},
		{"else it is chance", pod("a", 80), pod("z", 80), nil},
	} {
		t.Run(c.rule, func(t *testing.T) {
			for _, all := range [][]*corev1.Pod{{c.first, c.then}, {c.then, c.first}} {
				if rank(all, c.neighbours, now); all[0] != c.first {
					t.Errorf("%s goes before %s", all[0].Name, c.first.Name)
				}
			}
		})
	}
}
