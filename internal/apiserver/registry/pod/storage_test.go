package pod

import (
	"context"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/etcd"
	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/apiserver/scheme"
	"monopod.dev/monopod/internal/apiserver/store"
)

// fixture is the storages of pods on an etcd of their own.
type fixture struct {
	*testing.T
	Storage
	ctx context.Context
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	dir, err := os.MkdirTemp("", "pod") // short: it holds a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	server, err := etcd.Start(t.Context(), etcd.Config{
		DataDir: filepath.Join(dir, "d"), SocketDir: filepath.Join(dir, "s"), Tick: 10 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	set, err := scheme.New(AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	objects := store.New(store.Config{Client: server.Client(), Codecs: set.Codecs})
	t.Cleanup(objects.Close)
	storage, err := NewStorage(objects, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(storage.Pod.Destroy)
	if err := objects.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx := genericrequest.WithNamespace(genericrequest.NewContext(), "default")
	ctx = genericrequest.WithRequestInfo(ctx, &genericrequest.RequestInfo{APIVersion: "v1", Resource: "pods"})
	return &fixture{T: t, Storage: storage, ctx: ctx}
}

func (f *fixture) must(obj runtime.Object, err error) *corev1.Pod {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
	return obj.(*corev1.Pod)
}

func (f *fixture) create(name string) *corev1.Pod {
	f.Helper()
	pod := validPod()
	pod.Name = name
	return f.must(f.Pod.Create(f.ctx, pod, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}))
}

func (f *fixture) get(name string) *corev1.Pod {
	f.Helper()
	return f.must(f.Pod.Get(f.ctx, name, &metav1.GetOptions{}))
}

func (f *fixture) gone(name string) {
	f.Helper()
	if _, err := f.Pod.Get(f.ctx, name, &metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		f.Errorf("pod %s: error %v, want not found", name, err)
	}
}

func (f *fixture) update(to rest.Updater, pod *corev1.Pod) (*corev1.Pod, error) {
	f.Helper()
	obj, _, err := to.Update(f.ctx, pod.Name, rest.DefaultUpdatedObjectInfo(pod), rest.ValidateAllObjectFunc,
		rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Pod), nil
}

func (f *fixture) bind(name, node string, change func(*corev1.Binding), options *metav1.CreateOptions) error {
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	if change != nil {
		change(binding)
	}
	if options == nil {
		options = &metav1.CreateOptions{}
	}
	_, err := f.Binding.Create(f.ctx, name, binding, rest.ValidateAllObjectFunc, options)
	return err
}

func (f *fixture) delete(name string, options *metav1.DeleteOptions) (immediate bool, err error) {
	_, immediate, err = f.Pod.Delete(f.ctx, name, rest.ValidateAllObjectFunc, options)
	return immediate, err
}

func TestCreateResetsTheStatus(t *testing.T) {
	f := newFixture(t)
	pod := validPod()
	pod.Generation = 7
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", QOSClass: corev1.PodQOSGuaranteed}
	got := f.must(f.Pod.Create(f.ctx, pod, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}))
	if got.Generation != 1 || got.Status.Phase != corev1.PodPending || got.Status.PodIP != "" || got.Status.QOSClass != corev1.PodQOSBurstable {
		t.Errorf("generation %d, status %+v", got.Generation, got.Status)
	}
	if _, err := f.Pod.Create(f.ctx, validPod(), rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("created again: %v, want already exists", err)
	}
	bad := validPod()
	bad.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c"}}
	if _, err := f.Pod.Create(f.ctx, bad, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("with a refused field: %v, want invalid", err)
	}
}

func TestSpecAndStatusHaveSeparateWriters(t *testing.T) {
	f := newFixture(t)
	pod := f.create("p")

	pod.Status.Phase = corev1.PodRunning
	pod.Labels["a"] = "b"
	pod, err := f.update(f.Pod, pod)
	if err != nil || pod.Status.Phase != corev1.PodPending || pod.Labels["a"] != "b" || pod.Generation != 1 {
		t.Fatalf("update of metadata: %+v, %v", pod, err)
	}
	pod.Spec.Containers[0].Image = "new"
	if pod, err = f.update(f.Pod, pod); err != nil || pod.Generation != 2 {
		t.Fatalf("update of the image: %+v, %v; want generation 2", pod, err)
	}

	pod.Spec.Containers[0].Image = "newer"
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}, ObservedGeneration: 2}
	pod, err = f.update(f.Status, pod)
	if err != nil {
		t.Fatal(err)
	}
	if pod.Spec.Containers[0].Image != "new" || pod.Generation != 2 {
		t.Errorf("the status update changed the spec: %s, generation %d", pod.Spec.Containers[0].Image, pod.Generation)
	}
	if pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP != "10.0.0.1" || pod.Status.QOSClass != corev1.PodQOSBurstable {
		t.Errorf("status %+v", pod.Status)
	}

	pod.ResourceVersion = "1"
	if _, err := f.update(f.Status, pod); !apierrors.IsConflict(err) {
		t.Errorf("with an old resourceVersion: %v, want a conflict", err)
	}
	if _, err := f.update(f.Status, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "else"}}); !apierrors.IsNotFound(err) {
		t.Errorf("status of no pod: %v, want not found", err)
	}
}

func TestAPodIsBoundOnce(t *testing.T) {
	f := newFixture(t)
	pod := f.create("p")
	if err := f.bind("p", "n1", nil, &metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatal(err)
	}
	if got := f.get("p").Spec.NodeName; got != "" {
		t.Fatalf("a dry run bound the pod to %q", got)
	}
	if err := f.bind("p", "n1", func(b *corev1.Binding) { b.UID = "another" }, nil); !apierrors.IsConflict(err) {
		t.Errorf("with another pod's uid: %v, want a conflict", err)
	}
	if err := f.bind("p", "", nil, nil); !apierrors.IsInvalid(err) {
		t.Errorf("to no node: %v, want invalid", err)
	}
	if err := f.bind("else", "n1", nil, nil); !apierrors.IsNotFound(err) {
		t.Errorf("no such pod: %v, want not found", err)
	}
	if err := f.bind("p", "n1", func(b *corev1.Binding) { b.UID, b.Annotations = pod.UID, map[string]string{"why": "free"} }, nil); err != nil {
		t.Fatal(err)
	}
	pod = f.get("p")
	if pod.Spec.NodeName != "n1" || pod.Annotations["why"] != "free" || pod.Generation != 1 {
		t.Errorf("bound pod %+v", pod)
	}
	if len(pod.Status.Conditions) != 1 || pod.Status.Conditions[0].Type != corev1.PodScheduled || pod.Status.Conditions[0].Status != corev1.ConditionTrue {
		t.Errorf("conditions %+v", pod.Status.Conditions)
	}
	if err := f.bind("p", "n2", nil, nil); !apierrors.IsConflict(err) {
		t.Errorf("bound again: %v, want a conflict", err)
	}
}

// TestOldBindings: a pod gets its node also by a Binding in the place from before there were subresources.
func TestOldBindings(t *testing.T) {
	f := newFixture(t)
	f.create("p")
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
	if _, err := f.OldBinding.Create(f.ctx, binding.DeepCopy(), rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := f.get("p").Spec.NodeName; got != "n1" {
		t.Errorf("the pod is on %q, want n1", got)
	}
	if _, err := f.OldBinding.Create(f.ctx, binding.DeepCopy(), rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("bound again: %v, want a conflict", err)
	}
	binding.Name = ""
	if _, err := f.OldBinding.Create(f.ctx, binding, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("of no pod: %v, want a bad request", err)
	}
}

func TestDeletion(t *testing.T) {
	f := newFixture(t)
	grace := func(seconds int64) *metav1.DeleteOptions { return &metav1.DeleteOptions{GracePeriodSeconds: &seconds} }

	f.create("unbound")
	if immediate, err := f.delete("unbound", nil); err != nil || !immediate {
		t.Errorf("unbound: immediate %v, %v", immediate, err)
	}
	f.gone("unbound")

	f.create("bound")
	if err := f.bind("bound", "n", nil, nil); err != nil {
		t.Fatal(err)
	}
	if immediate, err := f.delete("bound", &metav1.DeleteOptions{}); err != nil || immediate {
		t.Fatalf("bound: immediate %v, %v", immediate, err)
	}
	pod := f.get("bound")
	if pod.DeletionTimestamp == nil || *pod.DeletionGracePeriodSeconds != corev1.DefaultTerminationGracePeriodSeconds || pod.Generation != 2 {
		t.Errorf("being deleted: %+v, want the grace period of the spec and generation 2", pod.ObjectMeta)
	}
	if err := f.bind("bound", "m", nil, nil); !apierrors.IsConflict(err) {
		t.Errorf("bind while it is deleted: %v, want a conflict", err)
	}
	if immediate, err := f.delete("bound", grace(5)); err != nil || immediate {
		t.Fatalf("shorter: immediate %v, %v", immediate, err)
	}
	if got := *f.get("bound").DeletionGracePeriodSeconds; got != 5 {
		t.Errorf("grace period %d, want 5", got)
	}
	if _, err := f.delete("bound", grace(50)); err != nil {
		t.Fatal(err)
	}
	if got := *f.get("bound").DeletionGracePeriodSeconds; got != 5 {
		t.Errorf("grace period %d: it was made longer", got)
	}

	// What the agent does when the containers are gone.
	other, zero := types.UID("another"), int64(0)
	if _, err := f.delete("bound", &metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &other}}); !apierrors.IsConflict(err) {
		t.Errorf("with another pod's uid: %v, want a conflict", err)
	}
	if immediate, err := f.delete("bound", &metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &pod.UID}}); err != nil || !immediate {
		t.Errorf("the last step: immediate %v, %v", immediate, err)
	}
	f.gone("bound")

	f.create("ended")
	if err := f.bind("ended", "n", nil, nil); err != nil {
		t.Fatal(err)
	}
	ended := f.get("ended")
	ended.Status.Phase = corev1.PodFailed
	if _, err := f.update(f.Status, ended); err != nil {
		t.Fatal(err)
	}
	if immediate, err := f.delete("ended", nil); err != nil || !immediate {
		t.Errorf("ended: immediate %v, %v", immediate, err)
	}
	f.gone("ended")
}

// TestAnEndlessGracePeriod: one that no time can hold is no time that is over.
func TestAnEndlessGracePeriod(t *testing.T) {
	f := newFixture(t)
	for name, seconds := range map[string]int64{"most": math.MaxInt64, "more-than-a-duration": math.MaxInt64/int64(time.Second) + 1} {
		f.create(name)
		if err := f.bind(name, "n", nil, nil); err != nil {
			t.Fatal(err)
		}
		if immediate, err := f.delete(name, &metav1.DeleteOptions{GracePeriodSeconds: &seconds}); err != nil || immediate {
			t.Fatalf("%s: immediate %v, %v", name, immediate, err)
		}
		pod := f.get(name)
		if pod.DeletionTimestamp == nil || time.Until(pod.DeletionTimestamp.Time) < 50*365*24*time.Hour || *pod.DeletionGracePeriodSeconds <= 0 {
			t.Errorf("%s: the pod ends at %v, after %d s", name, pod.DeletionTimestamp, *pod.DeletionGracePeriodSeconds)
		}
	}
}

// TestAgentsWatchTheirNode watches as an agent does: a pod appears when it is bound.
func TestAgentsWatchTheirNode(t *testing.T) {
	f := newFixture(t)
	f.create("a")
	f.create("b")
	mine := &internalversion.ListOptions{
		LabelSelector: labels.Everything(), FieldSelector: fields.OneTermEqualSelector(nodeNameField, "n"),
	}
	list, err := f.Pod.List(f.ctx, mine)
	if err != nil || len(list.(*corev1.PodList).Items) != 0 {
		t.Fatalf("before: %v, %v", list, err)
	}
	mine.ResourceVersion = list.(*corev1.PodList).ResourceVersion
	watcher, err := f.Pod.Watch(f.ctx, mine)
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	start := time.Now()
	if err := f.bind("b", "n", nil, nil); err != nil {
		t.Fatal(err)
	}
	select {
	case event := <-watcher.ResultChan():
		if pod, ok := resource.Watched(event.Object).(*corev1.Pod); !ok || event.Type != watch.Added || pod.Name != "b" {
			t.Fatalf("event %+v", event)
		}
		t.Logf("bound and seen in %v", time.Since(start))
	case <-time.After(time.Minute):
		t.Fatal("the watch says nothing")
	}
	list, err = f.Pod.List(f.ctx, &internalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("status.phase", "Pending")})
	if err != nil || len(list.(*corev1.PodList).Items) != 2 {
		t.Errorf("pending pods: %v, %v", list, err)
	}
}
