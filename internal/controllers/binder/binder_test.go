package binder_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"monopod.dev/monopod/internal/apiserver"
	"monopod.dev/monopod/internal/controllers"
	"monopod.dev/monopod/internal/controllers/catalog"
)

const (
	widget  = "example.com/widget"
	timeout = 60 * time.Second
)

// world is a real API server.
type world struct {
	*testing.T
	client kubernetes.Interface
	config *rest.Config
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "bind") // short: it holds a socket
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	server, err := apiserver.New(ctx, apiserver.Config{
		DataDir: filepath.Join(dir, "d"), RunDir: filepath.Join(dir, "r"), Kubeconfig: filepath.Join(dir, "kubeconfig"),
		BindAddress: "127.0.0.1", NodeName: "n", EtcdTick: 10 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the API server ended with %v", err)
		}
		os.RemoveAll(dir)
	})
	select {
	case <-server.Ready():
	case <-time.After(timeout):
		t.Fatal("the API server does not become ready")
	}
	w := &world{T: t, config: rest.CopyConfig(server.AdminConfig())}
	w.config.QPS = -1
	if w.client, err = kubernetes.NewForConfig(w.config); err != nil {
		t.Fatal(err)
	}
	return w
}

// bind runs a binder until the test ends or stop is called, which returns when nothing of the binder is at work.
func (w *world) bind() (stop func()) { return w.control(catalog.Binder) }

// control does the same with other controllers.
func (w *world) control(choice ...string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- controllers.New(controllers.Config{Kube: w.config, Choice: choice}).Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("the binder ended with %v", err)
		}
	})
	w.Cleanup(stop)
	return stop
}

func quantities(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func (w *world) pod(name string, change func(*corev1.PodSpec), limits ...string) *corev1.Pod {
	w.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Limits: quantities(limits...)},
	}}}}
	if change != nil {
		change(&pod.Spec)
	}
	pod, err := w.client.CoreV1().Pods("default").Create(w.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return pod
}

// end removes a pod at once, as its agent does when the containers are gone.
func (w *world) end(name string) {
	w.Helper()
	if err := w.client.CoreV1().Pods("default").Delete(w.Context(), name, *metav1.NewDeleteOptions(0)); err != nil {
		w.Fatal(err)
	}
}

// node makes a node, or changes what it offers.
func (w *world) node(name string, allocatable ...string) {
	w.Helper()
	nodes := w.client.CoreV1().Nodes()
	node, err := nodes.Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		if node, err = nodes.Create(w.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			w.Fatal(err)
		}
	}
	node.Status.Allocatable = quantities(append(allocatable, "pods", "200")...)
	node.Status.Capacity = node.Status.Allocatable
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if _, err := nodes.UpdateStatus(w.Context(), node, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// until waits for a pod to become as wanted.
func (w *world) until(name, what string, wanted func(*corev1.Pod) bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), timeout)
	defer cancel()
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()}
	list, err := w.client.CoreV1().Pods("default").List(ctx, options)
	if err != nil {
		w.Fatal(err)
	}
	if len(list.Items) == 1 && wanted(&list.Items[0]) {
		return
	}
	options.ResourceVersion = list.ResourceVersion
	watcher, err := w.client.CoreV1().Pods("default").Watch(ctx, options)
	if err != nil {
		w.Fatal(err)
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		if pod, ok := event.Object.(*corev1.Pod); ok && wanted(pod) {
			return
		}
	}
	pod, err := w.client.CoreV1().Pods("default").Get(w.Context(), name, metav1.GetOptions{})
	w.Fatalf("pod %s does not become %s: %+v, %v", name, what, pod, err)
}

func (w *world) untilBound(name, node string) {
	w.Helper()
	w.until(name, "bound to "+node, func(p *corev1.Pod) bool { return p.Spec.NodeName == node })
}

func (w *world) untilWaiting(name, why string) {
	w.Helper()
	w.until(name, fmt.Sprintf("waiting because %q", why), func(p *corev1.Pod) bool {
		return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse &&
				c.Reason == corev1.PodReasonUnschedulable && c.Message == why
		})
	})
}

func (w *world) untilEvent(pod, reason, message string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), timeout)
	defer cancel()
	events := w.client.CoreV1().Events("default")
	options := metav1.ListOptions{FieldSelector: fields.Set{"involvedObject.name": pod, "reason": reason}.String()}
	list, err := events.List(ctx, options)
	if err != nil {
		w.Fatal(err)
	}
	options.ResourceVersion = list.ResourceVersion
	watcher, err := events.Watch(ctx, options)
	if err != nil {
		w.Fatal(err)
	}
	defer watcher.Stop()
	found := func(e *corev1.Event) bool {
		if e.Message == message && (e.Source.Component != "default-scheduler" || e.ReportingController != "default-scheduler") {
			w.Errorf("the event %s of pod %s is told by %q, %q", reason, pod, e.Source.Component, e.ReportingController)
		}
		return e.Message == message
	}
	for i := range list.Items {
		if found(&list.Items[i]) {
			return
		}
	}
	for event := range watcher.ResultChan() {
		if e, ok := event.Object.(*corev1.Event); ok && found(e) {
			return
		}
	}
	w.Fatalf("no event %s of pod %s with message %q", reason, pod, message)
}

func TestAPodWaitsForWhatItAsksFor(t *testing.T) {
	w := newWorld(t)
	w.bind()
	w.pod("first", nil, widget, "1")
	w.untilWaiting("first", "no nodes available to schedule pods")

	w.node("n", "cpu", "4")
	const insufficient = "0/1 nodes are available: 1 Insufficient example.com/widget."
	const none = insufficient + " No node offers example.com/widget yet; the pod starts when one does."
	w.untilWaiting("first", none)
	w.untilEvent("first", "FailedScheduling", none)

	w.node("n", "cpu", "4", widget, "1")
	w.untilBound("first", "n")
	w.untilEvent("first", "Scheduled", "Successfully assigned default/first to n")

	w.pod("second", nil, widget, "1")
	w.untilWaiting("second", insufficient)
	w.end("first")
	w.untilBound("second", "n")
}

// TestWhatAPodHasByItsStatus: what a pod's agent says that it has counts until that says otherwise, and who waits gets what it gives back.
func TestWhatAPodHasByItsStatus(t *testing.T) {
	w := newWorld(t)
	w.bind()
	w.node("n", "cpu", "4")
	w.pod("has", nil, "cpu", "1")
	w.untilBound("has", "n")
	tell := func(cpu string) {
		w.Helper()
		patch := fmt.Sprintf(`{"status":{"containerStatuses":[{"name":"c","image":"i","imageID":"","ready":true,"restartCount":0,"allocatedResources":{"cpu":%q}}]}}`, cpu)
		if _, err := w.client.CoreV1().Pods("default").Patch(w.Context(), "has", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
			w.Fatal(err)
		}
	}
	tell("3")
	w.pod("wants", nil, "cpu", "2")
	w.untilWaiting("wants", "0/1 nodes are available: 1 Insufficient cpu.")
	tell("1")
	w.untilBound("wants", "n")
}

func TestOneBinderNeverGivesTheSameTwice(t *testing.T) {
	w := newWorld(t)
	w.bind()
	w.node("n", "cpu", "100", widget, "5")
	const all = 30
	for i := range all {
		w.pod(fmt.Sprint("p", i), nil, widget, "1")
	}
	// A pod without the device comes last in the queue: when it is bound, all others were decided.
	w.pod("last", nil)
	w.untilBound("last", "n")
	list, err := w.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=n"})
	if err != nil {
		t.Fatal(err)
	}
	if got := len(list.Items) - 1; got != 5 {
		t.Errorf("%d pods have got 5 widgets", got)
	}
}

func TestPodsOfOtherSchedulersAreLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.bind()
	w.node("n", "cpu", "1")
	w.pod("other", func(s *corev1.PodSpec) { s.SchedulerName = "other" })
	w.pod("placed", func(s *corev1.PodSpec) { s.NodeName = "elsewhere" })
	w.pod("ours", nil) // is decided after the others
	w.untilBound("ours", "n")
	for name, node := range map[string]string{"other": "", "placed": "elsewhere"} {
		pod, err := w.client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if pod.Spec.NodeName != node || len(pod.Status.Conditions) > 0 {
			t.Errorf("pod %s: node %q, conditions %v", name, pod.Spec.NodeName, pod.Status.Conditions)
		}
	}
}

func TestTheEmptierNodeIsChosen(t *testing.T) {
	w := newWorld(t)
	w.bind()
	w.node("a", "cpu", "4")
	w.node("b", "cpu", "4")
	got := map[string]int{}
	for i := range 6 {
		name := fmt.Sprint("p", i)
		w.pod(name, nil)
		w.until(name, "bound", func(p *corev1.Pod) bool {
			if p.Spec.NodeName != "" {
				got[p.Spec.NodeName]++
			}
			return p.Spec.NodeName != ""
		})
	}
	if got["a"] != 3 || got["b"] != 3 {
		t.Errorf("pods by node: %v, want 3 on each", got)
	}
}

// TestANewBinderTakesOver stops a binder, and another one goes on with what waits.
func TestANewBinderTakesOver(t *testing.T) {
	w := newWorld(t)
	stop := w.bind()
	w.node("n", "cpu", "1")
	w.pod("before", nil)
	w.untilBound("before", "n")
	stop()
	w.pod("between", nil)
	w.bind()
	w.untilBound("between", "n")
}

func TestRunLeavesNothing(t *testing.T) {
	w := newWorld(t)
	w.node("n", "cpu", "1") // opens the connection that all clients of this configuration share
	before := goleak.IgnoreCurrent()
	stop := w.bind()
	w.pod("p", nil)
	w.untilBound("p", "n")
	stop()
	// The server's watch cache lets a timer of three seconds run out after a list, and the server itself begins to watch namespaces at about the time when
	// it is ready.
	goleak.VerifyNone(t, before, goleak.IgnoreTopFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2"),
		goleak.IgnoreTopFunction("k8s.io/apiserver/pkg/storage/cacher.(*cacheWatcher).process"))
}

// TestBindingIsQuick tells the time from the answer to a create until a watcher of the node sees the pod: what the
// binder adds to a pod's start.
func TestBindingIsQuick(t *testing.T) {
	w := newWorld(t)
	w.bind()
	w.node("n", "cpu", "100")
	w.pod("warm", nil)
	w.untilBound("warm", "n")
	watcher, err := w.client.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=n"})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	<-watcher.ResultChan() // warm
	var times []time.Duration
	for i := range 50 {
		name := fmt.Sprint("p", i)
		w.pod(name, nil, "cpu", "10m")
		start := time.Now()
		for event := range watcher.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok && pod.Name == name {
				break
			}
		}
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	t.Logf("created to bound, as the node's watcher sees it: p50 %v, p90 %v", times[len(times)/2], times[len(times)*9/10])
	if p50 := times[len(times)/2]; p50 > 200*time.Millisecond {
		t.Errorf("p50 is %v: somebody polls", p50)
	}
}
