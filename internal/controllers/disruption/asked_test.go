package disruption

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

func TestAsked(t *testing.T) {
	var a asked
	x, y := cache.NewObjectName("n", "x"), cache.NewObjectName("n", "y")
	depend := func(what, owner string, want ...string) {
		t.Helper()
		var got []string
		for _, b := range a.budgets(types.UID(owner)) {
			got = append(got, b.Name)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: on %s depend %v, want %v", what, owner, got, want)
		}
	}
	depend("nothing is known", "1")
	a.note(x, "1")
	a.note(x, "2")
	a.note(y, "2")
	depend("they are decided", "1", "x")
	depend("they are decided", "2", "x", "y")
	a.note(x, "3")
	a.settle(x, map[types.UID]struct{}{"2": {}, "3": {}})
	depend("one is decided anew", "1")
	depend("one is decided anew", "2", "x", "y")
	depend("one is decided anew", "3", "x")
	a.settle(x, nil)
	a.settle(y, nil)
	depend("both are gone", "2")
	if len(a.by)+len(a.of) > 0 {
		t.Errorf("left are %v and %v", a.by, a.of)
	}
}

// stage is a controller whose informers have so many deployments, each with a replica set, a pod and a budget of its own; nothing runs.
type stage struct {
	testing.TB
	*Controller
	deployments []*appsv1.Deployment
	pods        []*corev1.Pod
}

func newStage(t testing.TB, n int) *stage {
	t.Helper()
	factory := informers.NewSharedInformerFactory(nil, 0)
	core, apps := factory.Core().V1(), factory.Apps().V1()
	c, err := New(Config{
		Budgets: factory.Policy().V1().PodDisruptionBudgets(), Pods: core.Pods(), Deployments: apps.Deployments(), Sets: apps.ReplicaSets(),
		Stateful: apps.StatefulSets(), Controllers: core.ReplicationControllers(), Scales: served{}, Events: record.NewFakeRecorder(1),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.budgets.ShutDown)
	t.Cleanup(c.marked.ShutDown)
	s := &stage{TB: t, Controller: c}
	one, replicas := intstr.FromInt32(1), int32(2)
	for i := range n {
		name := fmt.Sprint("app-", i)
		m := func(name, owner string) metav1.ObjectMeta {
			m := metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(name), Labels: map[string]string{"app": fmt.Sprint("app-", i), "tier": "web"}}
			of(&m, owner)
			return m
		}
		d := &appsv1.Deployment{ObjectMeta: m(name, ""), Spec: appsv1.DeploymentSpec{Replicas: &replicas}}
		pod := &corev1.Pod{ObjectMeta: m(name+"-set-pod", "apps/v1 ReplicaSet "+name+"-set")}
		s.deployments, s.pods = append(s.deployments, d), append(s.pods, pod)
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: m("budget-"+name, ""), Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
		}}
		c.pods.Set(pod)
		c.selectors.Set(budget)
		for to, obj := range map[cache.Indexer]any{
			apps.Deployments().Informer().GetIndexer():                           d,
			apps.ReplicaSets().Informer().GetIndexer():                           &appsv1.ReplicaSet{ObjectMeta: m(name+"-set", "apps/v1 Deployment "+name), Spec: appsv1.ReplicaSetSpec{Replicas: &replicas}},
			factory.Policy().V1().PodDisruptionBudgets().Informer().GetIndexer(): budget,
		} {
			if err := to.Add(obj); err != nil {
				t.Fatal(err)
			}
		}
		c.budgets.Add(cache.NewObjectName("n", "budget-"+name))
	}
	s.drain(n)
	return s
}

// drain decides about the budgets that are in line, which are so many.
func (s *stage) drain(n int) (names []string) {
	s.Helper()
	for range n {
		name, ok := s.budgets.Get()
		if !ok {
			s.Fatal("the line has ended")
		}
		s.budgets.Done(name)
		budget, err := s.config.Budgets.Lister().PodDisruptionBudgets(name.Namespace).Get(name.Name)
		if err != nil {
			s.Fatal(err)
		}
		if _, _, err := s.decide(s.Context(), budget); err != nil {
			s.Fatal(err)
		}
		names = append(names, name.Name)
	}
	return names
}

// scale has a deployment want another number of pods, and says which budgets are looked at.
func (s *stage) scale(i int) []string {
	now := s.deployments[i].DeepCopy()
	*now.Spec.Replicas++
	s.ownerChanged(s.deployments[i], now)
	s.deployments[i] = now
	s.budgets.Add(cache.NewObjectName("n", "budget-app-0")) // the last in line
	return s.drain(2)
}

// TestOwnerChanged: what an owner of pods wants is a matter of the budgets of its pods alone.
func TestOwnerChanged(t *testing.T) {
	s := newStage(t, 5)
	if got := strings.Join(s.scale(3), " "); got != "budget-app-3 budget-app-0" {
		t.Errorf("a deployment wants more pods: %s are looked at, and its budget alone is to be", got)
	}
	// The replica set that a pod belongs to is not there yet: its budget hears when it is.
	set, err := s.config.Sets.Lister().ReplicaSets("n").Get("app-2-set")
	if err != nil {
		t.Fatal(err)
	}
	s.ownerChanged(nil, set)
	s.budgets.Add(cache.NewObjectName("n", "budget-app-0"))
	if got := strings.Join(s.drain(2), " "); got != "budget-app-2 budget-app-0" {
		t.Errorf("a replica set comes: %s are looked at, and the budget of its pods alone is to be", got)
	}
}

// BenchmarkOwnerChanged is a change of one of so many deployments of a namespace, each of which has a budget, with the looks at budgets that it brings.
func BenchmarkOwnerChanged(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := newStage(b, n)
			b.ReportAllocs()
			for b.Loop() {
				s.scale(n / 2)
			}
		})
	}
}

// BenchmarkPodChanged is a pod of so many that becomes ready, with the looks at budgets that it brings.
func BenchmarkPodChanged(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := newStage(b, n)
			pod := s.pods[n/2]
			ready := pod.DeepCopy()
			ready.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			b.ReportAllocs()
			for b.Loop() {
				s.podChanged(pod, ready)
				s.drain(1)
				pod, ready = ready, pod
			}
		})
	}
}
