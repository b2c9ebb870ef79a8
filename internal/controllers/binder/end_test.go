package binder

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
)

// stage is a Binder whose caches a test fills by itself, with a node of 110 pods that has room for no other one.
type stage struct {
	testing.TB
	*Binder
	nodes  informers.SharedInformerFactory
	placed []*corev1.Pod
	// bound are the names of the pods that were bound, decided how many decisions there were.
	bound   []string
	decided int
	made    int
}

// answer is an API server that takes everything. It is told the paths.
type answer func(path []string)

func (a answer) RoundTrip(r *http.Request) (*http.Response, error) {
	a(strings.Split(r.URL.Path, "/"))
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Success"}`)),
	}, nil
}

// newStage has so many pods wait whose container has a specification.
func newStage(t testing.TB, waiting int, spec string) *stage {
	s := &stage{TB: t}
	client := kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://api", QPS: -1, Transport: answer(func(path []string) {
		if path[len(path)-1] == "binding" {
			s.bound = append(s.bound, path[len(path)-2])
		}
	}), ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	s.nodes = informers.NewSharedInformerFactory(client, 0)
	core := s.nodes.Core().V1()
	binder, err := New(Config{Client: client, Pods: core.Pods(), Nodes: core.Nodes(), Namespaces: core.Namespaces(), Events: &record.FakeRecorder{},
		Claims: core.PersistentVolumeClaims(), Volumes: core.PersistentVolumes(), Classes: s.nodes.Storage().V1().StorageClasses()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(binder.queue.ShutDown)
	t.Cleanup(binder.toDo.ShutDown)
	s.Binder = binder
	node := nodeWith(nil)
	node.Status.Allocatable = list("pods", "110", "cpu", "110", "memory", "1Ti")
	if err := core.Nodes().Informer().GetIndexer().Add(node); err != nil {
		t.Fatal(err)
	}
	for range 110 {
		p := s.pod("resources: {requests: {cpu: 1}}")
		p.Spec.NodeName = node.Name
		s.show(p)
	}
	for range waiting {
		s.show(s.pod(spec))
	}
	s.drain()
	return s
}

// pod is a new one, which nobody knows yet.
func (s *stage) pod(container string) *corev1.Pod {
	s.made++
	p := read("{spec: {schedulerName: default-scheduler, containers: [{name: c, image: i, " + container + "}]}}")
	p.Namespace, p.Name, p.UID, p.CreationTimestamp = "n", fmt.Sprint("p", s.made), types.UID(fmt.Sprint(s.made)), metav1.Unix(int64(s.made), 0)
	return p
}

func (s *stage) show(p *corev1.Pod) {
	s.Helper()
	old, had, err := s.pods.GetIndexer().Get(p)
	if err == nil {
		err = s.pods.GetIndexer().Update(p)
	}
	if err != nil {
		s.Fatal(err)
	}
	if p.Spec.NodeName != "" {
		s.placed = append(s.placed, p)
	}
	if had {
		s.podChanged(old.(*corev1.Pod), p)
	} else {
		s.podChanged(nil, p)
	}
}

// end has the oldest of the placed pods end.
func (s *stage) end() {
	s.Helper()
	p := s.placed[0]
	s.placed = s.placed[1:]
	if err := s.pods.GetIndexer().Delete(p); err != nil {
		s.Fatal(err)
	}
	s.podGone(p)
}

// drain has all decided about who is in the queue. What they are told they have been told, too.
func (s *stage) drain() {
	s.Helper()
	s.queue.Add(types.NamespacedName{Name: "the last one"})
	for {
		key, _ := s.queue.Get()
		if key.Namespace == "" {
			s.queue.Done(key)
			return
		}
		s.decided++
		err := s.sync(s.Context(), key)
		s.queue.Done(key)
		if err != nil {
			s.Fatal(err)
		}
	}
}

// told writes into the cache what the pods that wait were told, as the API server would.
func (s *stage) told(why string) {
	for _, obj := range s.pods.GetIndexer().List() {
		if p := obj.(*corev1.Pod); p.Spec.NodeName == "" {
			p = p.DeepCopy()
			p.Status = waitingStatus(p, why)
			s.show(p)
		}
	}
}

// TestFreed: who may get a node by the end of a pod, or is told something else, is looked at again, and nobody else.
func TestFreed(t *testing.T) {
	s := newStage(t, 0, "")
	web := "metadata: {name: w, namespace: n, uid: w, labels: {app: web}}, "
	for _, c := range []struct {
		name, ended, waits string
		again              bool
	}{
		{"there is not enough", `{spec: {containers: [{name: c}]}}`, `{` + web + `spec: {containers: [{name: c, resources: {requests: {cpu: 2}}}]}}`, false},
		{"there is enough", `{spec: {containers: [{name: c}]}}`, `{` + web + `spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}`, true},
		{"it had devices of the kind", `{spec: {containers: [{name: c, resources: {requests: {example.com/d: 1}}}]}}`,
			`{` + web + `spec: {containers: [{name: c, resources: {requests: {cpu: 2, example.com/d: 1}}}]}}`, true},
		{"it had other devices", `{spec: {containers: [{name: c, resources: {requests: {example.com/e: 1}}}]}}`,
			`{` + web + `spec: {containers: [{name: c, resources: {requests: {cpu: 2, example.com/d: 1}}}]}}`, false},
		{"it kept the other one away", `{metadata: {namespace: n}, spec: {` + far(to("web", "zone")) + `}}`, `{` + web + `spec: {containers: [{name: c, resources: {requests: {cpu: 2}}}]}}`, true},
		{"the other one keeps away from it", `{metadata: {namespace: n, labels: {app: db}}, spec: {}}`,
			`{` + web + `spec: {` + far(to("db", "zone")) + `, containers: [{name: c, resources: {requests: {cpu: 2}}}]}}`, true},
		{"the other one is spread beside it", `{metadata: {namespace: n, labels: {app: web}}, spec: {}}`,
			`{` + web + `spec: {` + spreads(spreadBy("zone", "")) + `, containers: [{name: c, resources: {requests: {cpu: 2}}}]}}`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.book.remove("1")
			s.decided = 0
			w := read(c.waits)
			s.line.enter(w)
			s.freed(read(c.ended), "n")
			s.drain()
			s.line.leave(w.UID)
			if (s.decided > 0) != c.again {
				t.Errorf("looked at again: %v, want %v", s.decided > 0, c.again)
			}
		})
	}
}

// TestEndOfMany: the end of a pod is no work for those who cannot have its place, and one of the others gets it.
func TestEndOfMany(t *testing.T) {
	for spec, want := range map[string]struct{ decided, bound int }{"cpu: 2": {0, 0}, "cpu: 1": {100, 1}} {
		s := newStage(t, 100, "resources: {requests: {"+spec+"}}")
		s.told("0/1 nodes are available: 1 Insufficient cpu, 1 Too many pods.")
		s.drain()
		s.decided = 0
		s.end()
		s.drain()
		if s.decided != want.decided || len(s.bound) != want.bound || want.bound > 0 && s.bound[0] != "p111" {
			t.Errorf("of 100 that want %s %d were looked at, and bound are %v", spec, s.decided, s.bound)
		}
	}
}

// BenchmarkEnd is the end of one of 110 pods while others wait for a node.
func BenchmarkEnd(b *testing.B) {
	for _, waiting := range []int{10, 1000} {
		b.Run(fmt.Sprintf("%d wait for more than it had", waiting), func(b *testing.B) {
			s := newStage(b, waiting, "resources: {requests: {cpu: 2}}")
			s.told("0/1 nodes are available: 1 Insufficient cpu, 1 Too many pods.")
			s.drain()
			for b.Loop() {
				s.end()
				s.drain()
				p := s.pod("resources: {requests: {cpu: 1}}") // its successor names its node by itself
				p.Spec.NodeName = "n"
				s.show(p)
				s.drain()
			}
		})
		b.Run(fmt.Sprintf("%d wait for what it had", waiting), func(b *testing.B) {
			s := newStage(b, waiting, "resources: {requests: {cpu: 1}}")
			s.told("0/1 nodes are available: 1 Insufficient cpu, 1 Too many pods.")
			s.drain()
			for b.Loop() {
				s.end()
				s.drain()
				if len(s.bound) != 1 {
					b.Fatalf("bound are %v", s.bound)
				}
				obj, _, _ := s.pods.GetIndexer().GetByKey("n/" + s.bound[0])
				s.bound = nil
				p := obj.(*corev1.Pod).DeepCopy()
				p.Spec.NodeName = "n"
				s.show(p)
				next := s.pod("resources: {requests: {cpu: 1}}")
				next.Status = waitingStatus(next, "0/1 nodes are available: 1 Insufficient cpu, 1 Too many pods.")
				s.show(next)
				s.drain()
			}
		})
	}
}

func waitingStatus(p *corev1.Pod, why string) corev1.PodStatus {
	return waiting(p, why, false, metav1.Now().Time)
}
