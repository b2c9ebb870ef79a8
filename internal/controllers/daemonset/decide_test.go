package daemonset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod.dev/monopod/internal/controllers/revisions"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func template(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
	}
}

// set is one of the image "new" that is rolled out with one node missing at a time.
func set(change ...func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
	s := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "n", UID: "d", Generation: 1, Annotations: map[string]string{appsv1.DeprecatedTemplateGeneration: "3"}},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}, Template: template("new"), RevisionHistoryLimit: new(int32),
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{}},
		},
	}
	*s.Spec.RevisionHistoryLimit = 10
	roll("0", "1")(s)
	for _, c := range change {
		c(s)
	}
	return s
}

func roll(surge, unavailable string) func(*appsv1.DaemonSet) {
	more, less := intstr.Parse(surge), intstr.Parse(unavailable)
	return func(s *appsv1.DaemonSet) {
		s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxSurge: &more, MaxUnavailable: &less}
	}
}
func onDelete(s *appsv1.DaemonSet) {
	s.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
}
func minReady(n int32) func(*appsv1.DaemonSet) {
	return func(s *appsv1.DaemonSet) { s.Spec.MinReadySeconds = n }
}
func selecting(zone string) func(*appsv1.DaemonSet) {
	return func(s *appsv1.DaemonSet) { s.Spec.Template.Spec.NodeSelector = map[string]string{"zone": zone} }
}
func limit(n int32) func(*appsv1.DaemonSet) {
	return func(s *appsv1.DaemonSet) { s.Spec.RevisionHistoryLimit = &n }
}
func on(node string) func(*appsv1.DaemonSet) {
	return func(s *appsv1.DaemonSet) { s.Spec.Template.Spec.NodeName = node }
}
func leaving(s *appsv1.DaemonSet) { s.DeletionTimestamp = &metav1.Time{Time: now} }

// made is the revision of a template.
func made(of corev1.PodTemplateSpec, number int64) *appsv1.ControllerRevision {
	s := set(func(s *appsv1.DaemonSet) { s.Spec.Template = of })
	plan, err := revisions.Decide(owner(s), nil)
	if err != nil {
		panic(err)
	}
	plan.Current.Revision = number
	return plan.Current
}

// nodes are nodes in short: a name, and what is amiss with it: "cordoned", "full" (NoSchedule), "evicted" (NoExecute), "lost" (unreachable, both), or the
// zone "east".
func nodes(of string) (all []*corev1.Node) {
	for word := range strings.FieldsSeq(of) {
		name, amiss, _ := strings.Cut(word, ":")
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": "west"}}}
		taint := func(key string, effects ...corev1.TaintEffect) {
			for _, effect := range effects {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect})
			}
		}
		switch amiss {
		case "cordoned":
			n.Spec.Unschedulable = true
			taint(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)
		case "full":
			taint("full", corev1.TaintEffectNoSchedule)
		case "evicted":
			taint("evicted", corev1.TaintEffectNoExecute)
		case "lost":
			taint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)
		case "rather-not":
			taint("rather-not", corev1.TaintEffectPreferNoSchedule)
		case "east":
			n.Labels["zone"] = "east"
		}
		all = append(all, n)
	}
	return all
}

// daemons are a set's pods in short: "a:old:ready" is the pod on the node a, of the revision old, which is ready for an hour; "a2:new:ready" is another one on
// it. Others than ready are running, fresh (ready for ten seconds), failed, succeeded, ending, and waiting, which is not bound yet.
func daemons(s *appsv1.DaemonSet, of string) (all []*corev1.Pod) {
	for i, word := range slices.Collect(strings.FieldsSeq(of)) {
		parts := strings.Split(word, ":")
		node := strings.TrimRight(parts[0], "23")
		p := newPod(s, &s.Spec.Template, node)
		p.Name, p.CreationTimestamp = parts[0], metav1.NewTime(now.Add(time.Duration(i-100)*time.Hour))
		p.Labels = map[string]string{"app": "a"}
		switch parts[1] {
		case "new":
			p.Labels["controller-revision-hash"] = hash(made(s.Spec.Template, 1))
		case "generation":
			p.Labels["pod-template-generation"] = "3"
		default:
			p.Labels["controller-revision-hash"], p.Labels["pod-template-generation"] = hash(made(template(parts[1]), 1)), "2"
		}
		p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
		ready := func(ago time.Duration) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-ago))}}
		}
		switch parts[2] {
		case "waiting":
			p.Spec.NodeName, p.Status.Phase = "", corev1.PodPending
		case "ready":
			ready(time.Hour)
		case "fresh":
			ready(10 * time.Second)
		case "failed":
			p.Status.Phase = corev1.PodFailed
		case "succeeded":
			p.Status.Phase = corev1.PodSucceeded
		case "ending":
			ready(time.Hour)
			p.DeletionTimestamp = &metav1.Time{Time: now}
		case "gone":
			p.Status.Phase = corev1.PodFailed
			p.DeletionTimestamp = &metav1.Time{Time: now}
		}
		all = append(all, p)
	}
	return all
}

// decide is a plan where pods fail on the node x time and again.
func decide(t *testing.T, s *appsv1.DaemonSet, of string, pods string) Plan {
	t.Helper()
	plan, err := Decide(State{
		Set: s, Nodes: nodes(of), Pods: daemons(s, pods), Now: now,
		Revisions: []*appsv1.ControllerRevision{made(template("older"), 1), made(template("old"), 2), made(s.Spec.Template, 3)},
		Patience: func(node string) time.Duration {
			if node == "x" {
				return 7 * time.Second
			}
			return 0
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// short is what a plan does to pods.
func short(p Plan) string {
	var all []string
	for _, pod := range p.Create {
		all = append(all, "create "+target(pod))
	}
	for _, d := range p.Delete {
		all = append(all, strings.TrimSpace("delete "+d.Pod.Name+" "+string(d.Ended)))
	}
	for _, r := range p.Forget {
		for _, image := range []string{"old", "older", "new"} {
			if hash(r) == hash(made(template(image), 1)) {
				all = append(all, "forget "+image)
			}
		}
	}
	if p.Again > 0 {
		all = append(all, fmt.Sprintf("again in %v", p.Again))
	}
	return strings.Join(all, ", ")
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		name        string
		set         *appsv1.DaemonSet
		nodes, pods string
		want        string
	}{
		{"one a node", set(), "a b", "", "create a, create b"},
		{"only where there is none", set(), "a b", "a:new:ready", "create b"},
		{"who waits to be bound is there", set(), "a", "a:new:waiting", ""},
		{"who is ending is there", set(), "a", "a:new:ending", ""},
		{"who has ended and goes is not", set(), "a", "a:new:gone", "create a"},
		{"selected nodes", set(selecting("east")), "a b:east", "", "create b"},
		{"not where it is not selected any more", set(selecting("east")), "a b:east", "a:new:ready b:new:ready", "delete a"},
		{"one node by its name", set(on("b")), "a b", "", "create b"},
		{"cordoned and lost nodes, too", set(), "a:cordoned b:lost c:rather-not", "", "create a, create b, create c"},
		{"none on a node with another taint", set(), "a:full b:evicted", "", ""},
		{"who is there before a taint stays", set(), "a:full", "a:new:ready", ""},
		{"but not with NoExecute", set(), "a:evicted", "a:new:ready", "delete a"},
		{"who waits for a node that is gone", set(), "a", "a:new:ready b:new:waiting c:new:ready", "delete b"},
		{"one too many: the newer goes", set(), "a", "a:new:ready a2:new:ready", "delete a2"},
		{"one too many: who is not bound goes", set(), "a", "a:new:waiting a2:new:ready", "delete a"},
		{"one has failed", set(), "a b", "a:new:failed b:new:succeeded", "delete a Failed, delete b Succeeded"},
		{"one fails time and again", set(), "x", "x:new:failed", "again in 7s"},
		{"who goes does nothing", set(leaving), "a b", "a:old:ready", ""},

		{"one after another", set(), "a b c", "a:old:ready b:old:ready c:old:ready", "delete a"},
		{"not while one is made anew", set(), "a b c", "b:old:ready c:old:ready", "create a"},
		{"not while one is not ready", set(), "a b", "a:new:running b:old:ready", ""},
		{"not while one is not available", set(minReady(60)), "a b", "a:new:fresh b:old:ready", "again in 50s"},
		{"while one ends nobody else goes", set(), "a b", "a:old:ending b:old:ready", ""},
		{"two at a time", set(roll("0", "2")), "a b c", "a:old:ready b:old:ready c:old:ready", "delete a, delete b"},
		{"a share, rounded up", set(roll("0", "40%")), "a b c", "a:old:ready b:old:ready c:old:ready", "delete a, delete b"},
		{"who is not available goes at once", set(), "a b c", "a:old:running b:old:running c:old:ready", "delete a, delete b"},
		{"on other nodes than those it is for nothing is missing", set(selecting("east")), "a b:east c:east", "b:old:ready c:old:ready", "delete b"},
		{"neither surge nor unavailability is one", set(roll("0", "0")), "a b", "a:old:ready b:old:ready", "delete a"},
		{"nothing unless deleted", set(onDelete), "a b", "a:old:ready b:old:running", ""},
		{"one too many, in an update of nothing", set(onDelete), "a", "a:old:ready a2:new:ready", "delete a2"},
		{"the number of the template is as good", set(), "a", "a:generation:ready", ""},

		{"another one beside it", set(roll("1", "0")), "a b", "a:old:ready b:old:ready", "create a"},
		{"a share of two", set(roll("50%", "0")), "a b c", "a:old:ready b:old:ready c:old:ready", "create a, create b"},
		{"as many as may be", set(roll("1", "0")), "a b", "a:old:ready a2:new:running b:old:ready", ""},
		{"the old one goes when the new one is available", set(roll("1", "0")), "a b", "a:old:ready a2:new:ready b:old:ready", "delete a"},
		{"and not before", set(roll("1", "0"), minReady(60)), "a b", "a:old:ready a2:new:fresh b:old:ready", "again in 50s"},
		{"the old one goes when it is not ready any more", set(roll("1", "0")), "a", "a:old:running a2:new:running", "delete a"},
		{"nobody waits for an old one that is not available", set(roll("1", "0")), "a b c", "a:old:running b:old:running c:old:ready", "create a, create b, create c"},
		{"who is ending is not waited for", set(roll("1", "0")), "a", "a:new:ending", "create a"},
		{"but who fails time and again is", set(roll("1", "0")), "x", "x:new:failed", "again in 7s"},
		{"a third one is too many", set(roll("1", "0")), "a", "a:old:ready a2:new:running a3:new:running", "delete a3"},
		{"a tainted node is left when others are available", set(roll("1", "0")), "a:full b", "a:old:ready b:new:ready", "delete a"},
		{"and not before", set(roll("1", "0")), "a:full b", "a:old:ready b:new:running", ""},
		{"a tainted node is left by who is not available", set(roll("1", "0")), "a:full b", "a:old:running b:new:running", "delete a"},

		{"history has no room", set(limit(0)), "a", "a:new:ready", "forget older, forget old"},
		{"revisions of pods stay", set(limit(0), onDelete), "a", "a:old:ready", "forget older"},
		{"room for one", set(limit(1)), "a", "a:new:ready", "forget older"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := short(decide(t, c.set, c.nodes, c.pods)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestTwins: pods of two revisions of one template are both updated, and the revision that none is of is forgotten.
func TestTwins(t *testing.T) {
	s := set()
	twin := made(s.Spec.Template, 4)
	twin.Name, twin.Labels = "d-twin", map[string]string{"app": "a", "controller-revision-hash": "twin"}
	pods := daemons(s, "a:new:ready b:new:ready")
	pods[0].Labels["controller-revision-hash"] = "twin"
	state := State{Set: s, Nodes: nodes("a b"), Pods: pods, Revisions: []*appsv1.ControllerRevision{made(s.Spec.Template, 3), twin}, Now: now}
	for _, want := range []string{"; 2 updated", "forget new; 2 updated"} {
		plan, err := Decide(state)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%s; %d updated", short(plan), plan.Status.Status.UpdatedNumberScheduled); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		pods[1].Labels["controller-revision-hash"] = "twin"
	}
}

func TestStatus(t *testing.T) {
	for _, c := range []struct {
		name        string
		set         *appsv1.DaemonSet
		nodes, pods string
		want        string
	}{
		{"none yet", set(), "a b", "", "2 desired, 0 current, 0 misscheduled, 0 ready, 0 updated, 0 available, 2 not"},
		{"in the midst", set(minReady(60)), "a b c d", "a:new:ready b:old:fresh c:new:running", "4 desired, 3 current, 0 misscheduled, 2 ready, 2 updated, 1 available, 3 not"},
		{"where none is to be", set(), "a:full b", "a:new:ready b:new:ready", "1 desired, 1 current, 1 misscheduled, 1 ready, 1 updated, 1 available, 0 not"},
		{"the older one counts", set(roll("1", "0")), "a", "a:old:ready a2:new:running", "1 desired, 1 current, 0 misscheduled, 1 ready, 0 updated, 1 available, 0 not"},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := decide(t, c.set, c.nodes, c.pods).Status.Status
			got := fmt.Sprintf("%d desired, %d current, %d misscheduled, %d ready, %d updated, %d available, %d not", st.DesiredNumberScheduled, st.CurrentNumberScheduled,
				st.NumberMisscheduled, st.NumberReady, st.UpdatedNumberScheduled, st.NumberAvailable, st.NumberUnavailable)
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if st.ObservedGeneration != 1 {
				t.Errorf("generation %d", st.ObservedGeneration)
			}
		})
	}
	told := decide(t, set(), "a", "a:new:ready").Status
	if again := decide(t, told, "a", "a:new:ready").Status; again != told {
		t.Errorf("what has not changed is told again: %+v", again.Status)
	}
}

// TestPod: a pod asks for its node, keeps what else its template says of nodes, and tolerates what is amiss with them.
func TestPod(t *testing.T) {
	seconds := int64(5)
	s := set(func(s *appsv1.DaemonSet) {
		s.Spec.Template.Spec.HostNetwork = true
		s.Spec.Template.Spec.Tolerations = []corev1.Toleration{
			{Key: "mine", Operator: corev1.TolerationOpExists},
			{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds},
		}
		s.Spec.Template.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}, NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"west"}},
			}}}},
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1}},
		}}
	})
	plan := decide(t, s, "a b:east", "")
	if len(plan.Create) != 1 {
		t.Fatalf("%d pods", len(plan.Create))
	}
	pod := plan.Create[0]
	if target(pod) != "a" || pod.Spec.NodeName != "" || pod.GenerateName != "d-" || pod.Spec.Affinity.PodAffinity == nil ||
		len(pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) != 1 {
		t.Errorf("%+v", pod)
	}
	if pod.Labels["pod-template-generation"] != "3" || pod.Labels["controller-revision-hash"] != hash(plan.Revision.Current) {
		t.Errorf("labels %v", pod.Labels)
	}
	var keys []string
	for _, toleration := range pod.Spec.Tolerations {
		keys = append(keys, strings.TrimPrefix(toleration.Key, "node.kubernetes.io/"))
		if toleration.TolerationSeconds != nil {
			t.Errorf("%s is tolerated for a time", toleration.Key)
		}
	}
	if got := strings.Join(keys, " "); got != "mine unreachable not-ready disk-pressure memory-pressure pid-pressure unschedulable network-unavailable" {
		t.Errorf("tolerates %s", got)
	}
	if len(s.Spec.Template.Spec.Tolerations) != 2 || *s.Spec.Template.Spec.Tolerations[1].TolerationSeconds != 5 ||
		s.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields != nil {
		t.Error("the set's template has changed")
	}
}

func TestPatience(t *testing.T) {
	var p patience
	s, at := set(), now
	for _, want := range []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second} {
		if got := p.left(s, "a", at); got != want {
			t.Errorf("left %v, want %v", got, want)
		}
		at = at.Add(p.left(s, "a", at))
		p.next(s, "a", at)
	}
	if got := p.left(s, "b", at); got != 0 {
		t.Errorf("on another node: %v", got)
	}
	for range 20 {
		p.next(s, "a", at)
	}
	if got := p.left(s, "a", at); got != longestPatience {
		t.Errorf("the longest is %v", got)
	}
	at = at.Add(2*longestPatience + 1)
	p.next(s, "a", at)
	if got := p.left(s, "a", at); got != firstPatience {
		t.Errorf("after a long time: %v", got)
	}
	changed := set()
	changed.Generation++
	if got := p.left(changed, "a", at); got != 0 {
		t.Errorf("of a set that has changed: %v", got)
	}
	p.next(changed, "a", at)
	p.keep(changed, func(node string) bool { return node != "a" })
	if got := p.left(changed, "a", at); got != 0 {
		t.Errorf("on a node that is gone: %v", got)
	}
}
