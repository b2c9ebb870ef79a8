package admit

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/pods/allocated"
)

func named(uid string, p *v1.Pod) *v1.Pod {
	p.UID = types.UID(uid)
	return p
}

// begun is a pod that began under an earlier agent.
func begun(p *v1.Pod, phase v1.PodPhase) *v1.Pod {
	p.Status = v1.PodStatus{Phase: phase, StartTime: &metav1.Time{}}
	return p
}

type world struct {
	node   *v1.Node
	fresh  func() (*v1.Node, error)
	known  []*v1.Pod
	synced bool
}

func (w *world) ledger(t *testing.T) *Ledger {
	return NewLedger(Config{
		Node: func() *v1.Node { return w.node },
		Fresh: func() (*v1.Node, error) {
			if w.fresh == nil {
				t.Error("the API server was asked for no reason")
				return nil, errors.New("asked")
			}
			return w.fresh()
		},
		Known: func() []*v1.Pod { return w.known }, Synced: func() bool { return w.synced },
	})
}

func reason(r *Refusal) string {
	if r == nil {
		return ""
	}
	return r.Reason
}

func TestLedger(t *testing.T) {
	w := &world{node: nodeOf(), synced: true}
	l := w.ledger(t)
	take := func(p *v1.Pod, begun bool, want string) {
		t.Helper()
		if got := reason(l.Take(p, begun)); got != want {
			t.Errorf("pod %s: %q, want %q", p.UID, got, want)
		}
	}
	a, b := named("a", podOf("cpu", "1500m")), named("b", podOf("cpu", "600m"))
	take(a, false, "")
	take(a, false, "")
	take(b, false, "OutOfcpu")
	take(b, true, "") // it runs, and has it
	if got := l.QOS(); got != (QOSSums{BurstableMilliCPU: 2100}) {
		t.Errorf("the classes: %+v", got)
	}
	c := named("c", podOf("cpu", "400m"))
	take(c, false, "OutOfcpu")
	for range 2 {
		l.Release("b")
	}
	take(c, false, "")
	// What it was given counts, not what its specification says by now.
	later := named("a", podOf("cpu", "1m"))
	take(later, true, "")
	take(named("d", podOf("cpu", "200m")), false, "OutOfcpu")
	cpu := func(p *v1.Pod) int64 { requests := allocated.Of(p).Requests(); return requests.Cpu().MilliValue() }
	if has := l.Admitted(later); cpu(has) != 1500 || cpu(later) != 1 {
		t.Errorf("it goes on with %d, and asks for %d", cpu(has), cpu(later))
	}
	if d := named("d", podOf("cpu", "200m")); l.Admitted(a) != a || l.Admitted(d) != d {
		t.Error("a pod that has what it asks for, or nothing yet, is another one")
	}
	for _, uid := range []types.UID{"a", "c"} {
		l.Release(uid)
	}
	if got := l.QOS(); got != (QOSSums{}) || l.used.pods != 0 || l.used.milliCPU != 0 {
		t.Errorf("left: %+v", l.used)
	}
}

// What pods have that began under an earlier agent is theirs, also before anybody has looked at them.
func TestLedgerOfBefore(t *testing.T) {
	port := func(uid string) *v1.Pod {
		p := named(uid, podOf())
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}}
		return p
	}
	late := begun(named("late", podOf("memory", "1Gi")), v1.PodRunning)
	w := &world{node: nodeOf(), known: []*v1.Pod{
		begun(port("has"), v1.PodRunning), begun(named("over", podOf("cpu", "2")), v1.PodSucceeded), begun(named("failed", podOf("cpu", "2")), v1.PodFailed), named("new", podOf("cpu", "2")),
	}}
	l := w.ledger(t)
	if got := reason(l.Take(port("wants"), false)); got != "NodePorts" {
		t.Errorf("a port that another pod has: %q", got)
	}
	w.known, w.synced = append(w.known, late), true
	if got := reason(l.Take(named("x", podOf("memory", "1")), false)); got != "OutOfmemory" {
		t.Errorf("what a pod has that was known later: %q", got)
	}
	if got := l.Take(named("new", podOf("cpu", "2")), false); got != nil {
		t.Errorf("what has not begun, or has ended, has nothing: %+v", got)
	}
	w.known = nil
	if got := l.Take(late, true); got != nil || l.used.memory != 1<<30 {
		t.Errorf("%+v; it is counted twice: %d", got, l.used.memory)
	}
	l.Release("has")
	l.Release("late")
	if got := l.Take(port("wants"), false); got != nil {
		t.Errorf("a port that was given back: %+v", got)
	}
}

// A label that was set a moment ago is looked for where it was set.
func TestLedgerAsks(t *testing.T) {
	wants := named("a", podOf())
	wants.Spec.NodeSelector = map[string]string{"new": "yes"}
	labelled := nodeOf()
	labelled.Labels["new"] = "yes"
	for name, c := range map[string]struct {
		node, fresh *v1.Node
		begun       bool
		want        string
	}{
		"it has the label by now":          {nodeOf(), labelled, false, ""},
		"it has not":                       {nodeOf(), nodeOf(), false, "NodeAffinity"},
		"it cannot be asked":               {nodeOf(), nil, false, "NodeAffinity"},
		"nothing is known yet":             {nil, labelled, false, ""},
		"and it cannot be asked":           {nil, nil, false, "InvalidNodeInfo"},
		"it runs, whatever the labels are": {nil, nil, true, ""},
	} {
		w := &world{node: c.node, synced: true, fresh: func() (*v1.Node, error) {
			if c.fresh == nil {
				return nil, errors.New("no API server")
			}
			return c.fresh, nil
		}}
		if got := reason(w.ledger(t).Take(wants, c.begun)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Many at once get no more than there is, and all that comes back is there again.
func TestLedgerAtOnce(t *testing.T) {
	w := &world{node: nodeOf(), synced: true}
	w.node.Status.Allocatable = list("cpu", "1", "pods", "1000")
	l := w.ledger(t)
	for range 3 {
		var wg sync.WaitGroup
		var mu sync.Mutex
		var got []types.UID
		for i := range 50 {
			wg.Go(func() {
				p := named(fmt.Sprint(i), podOf("cpu", "100m", "hugepages-2Mi", "0"))
				if l.Take(p, false) == nil {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, p.UID)
				}
			})
		}
		wg.Wait()
		if len(got) != 10 || l.QOS().BurstableMilliCPU != 1000 {
			t.Errorf("%d pods have a tenth each, %+v", len(got), l.QOS())
		}
		for _, uid := range got {
			l.Release(uid)
		}
	}
	if len(l.entries) > 0 || !reflect.DeepEqual(l.used, Used{others: map[v1.ResourceName]int64{"hugepages-2Mi": 0}}) {
		t.Errorf("left: %+v", l.used)
	}
}

// The cost of one pod is the same beside a thousand others as beside ten.
func BenchmarkTake(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			node := nodeOf()
			node.Status.Allocatable = list("cpu", "10000", "pods", "100000")
			w := &world{node: node, synced: true}
			l := NewLedger(Config{Node: func() *v1.Node { return w.node }, Known: func() []*v1.Pod { return nil }, Synced: func() bool { return true }})
			for i := range n {
				l.Take(named(fmt.Sprint(i), podOf("cpu", "1")), false)
			}
			p := named("x", podOf("cpu", "1"))
			p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}}
			for b.Loop() {
				if r := l.Take(p, false); r != nil {
					b.Fatal(r)
				}
				l.Release("x")
			}
		})
	}
}
