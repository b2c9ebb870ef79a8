package workload

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

var kind = appsv1.SchemeGroupVersion.WithKind("StatefulSet")

// world is a Loop of stateful sets and their pods, on informers of which a test is the API server.
type world struct {
	sets, pods *watch.FakeWatcher
	loop       *Loop[*appsv1.StatefulSet]

	mu sync.Mutex
	// synced, gone and seen are what the loop has called its functions with.
	synced, gone, seen []string
	// answer is what Sync returns.
	answer func(set *appsv1.StatefulSet) (time.Duration, error)
}

// source is an API server that has nothing before what a test sends.
type source struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported has the informer list first.
func (source) IsWatchListSemanticsUnSupported() bool { return true }

func from(w *watch.FakeWatcher, list runtime.Object) source {
	return source{&cache.ListWatch{
		ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return list, nil },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return w, nil },
	}}
}

func start(t *testing.T, change func(*Config[*appsv1.StatefulSet])) *world {
	t.Helper()
	w := &world{sets: watch.NewFake(), pods: watch.NewFake()}
	sets := cache.NewSharedIndexInformer(from(w.sets, &appsv1.StatefulSetList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}), &appsv1.StatefulSet{}, 0, cache.Indexers{})
	pods := cache.NewSharedIndexInformer(from(w.pods, &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}), &corev1.Pod{}, 0, cache.Indexers{})
	config := Config[*appsv1.StatefulSet]{
		Kind: kind, Owners: sets, Dependents: []cache.SharedIndexInformer{pods}, Workers: 2, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Selector: func(set *appsv1.StatefulSet) *metav1.LabelSelector { return set.Spec.Selector },
		Sync: func(_ context.Context, set *appsv1.StatefulSet) (time.Duration, error) {
			w.note(&w.synced, set.Name)
			if w.answer != nil {
				return w.answer(set)
			}
			return 0, nil
		},
		Gone: func(name cache.ObjectName) { w.note(&w.gone, name.Name) },
		Seen: func(set *appsv1.StatefulSet, gone bool) {
			if gone {
				w.note(&w.seen, set.Name+" gone")
			} else {
				w.note(&w.seen, set.Name)
			}
		},
	}
	if change != nil {
		change(&config)
	}
	var err error
	if w.loop, err = New(config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, run := range []func(){
		func() { sets.RunWithContext(ctx) }, func() { pods.RunWithContext(ctx) }, func() {
			if err := w.loop.Run(ctx); err != nil {
				t.Errorf("the loop ended with %v", err)
			}
		},
	} {
		all.Go(run)
	}
	t.Cleanup(func() { cancel(); all.Wait() })
	return w
}

func (w *world) note(of *[]string, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*of = append(*of, what)
}

// took is what was noted since it was taken last, when all is at rest.
func (w *world) took(of *[]string) []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	all := *of
	*of = nil
	return all
}

func (w *world) want(t *testing.T, what string, of *[]string, want ...string) {
	t.Helper()
	got := w.took(of)
	if len(got) != len(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
		return
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%s: %v, want %v", what, got, want)
			return
		}
	}
}

func set(name, version string) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(name), ResourceVersion: version},
		Spec:       appsv1.StatefulSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}},
	}
}

func pod(name, app, version string, owner *appsv1.StatefulSet) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(name), ResourceVersion: version, Labels: map[string]string{"app": app}}}
	if owner != nil {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)}
	}
	return p
}

// TestWhoIsLookedAt: an owner is looked at when it comes or changes, when a pod of it does, and when there is one that it could take over.
func TestWhoIsLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, nil)
		a := set("a", "2")
		w.sets.Add(a)
		w.want(t, "a set comes", &w.synced, "a")
		w.want(t, "it is seen", &w.seen, "a")
		w.sets.Add(set("b", "3"))
		w.want(t, "another one comes", &w.synced, "b")
		w.pods.Add(pod("a-0", "x", "4", a))
		w.want(t, "a pod of it comes", &w.synced, "a")
		w.pods.Add(pod("stray", "b", "5", nil))
		w.want(t, "there is a pod that it could take over", &w.synced, "b")
		w.pods.Add(pod("other", "c", "6", nil))
		w.want(t, "there is one that nobody could", &w.synced)
		w.loop.Look(cache.MetaObjectToName(a))
		w.want(t, "it is asked for", &w.synced, "a")
		w.took(&w.seen)
		w.sets.Delete(set("b", "7"))
		w.want(t, "it goes", &w.gone, "b")
		w.want(t, "it is seen to go", &w.seen, "b gone")
		w.want(t, "who is gone", &w.synced)
	})
}

// TestUnseen: who has written what the caches do not show is not looked at.
func TestUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, nil)
		a := set("a", "2")
		w.sets.Add(a)
		w.want(t, "it comes", &w.synced, "a")
		if err := w.loop.Told(set("a", "9"), nil); err != nil {
			t.Fatal(err)
		}
		w.loop.Look(cache.MetaObjectToName(a))
		w.want(t, "its status is written and not seen", &w.synced)
		time.Sleep(behind)
		w.want(t, "nor later", &w.synced)
		w.sets.Modify(set("a", "9"))
		w.want(t, "it is seen", &w.synced, "a")
	})
}

// TestAgain: Sync is called again when it asks for it, and when it fails, of which conflicts are not told.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, nil)
		var failed atomic.Bool
		w.answer = func(*appsv1.StatefulSet) (time.Duration, error) {
			if failed.CompareAndSwap(true, false) {
				return 0, errors.New("no")
			}
			return time.Hour, nil
		}
		w.sets.Add(set("a", "2"))
		w.want(t, "it comes", &w.synced, "a")
		time.Sleep(time.Hour)
		w.want(t, "its time has come", &w.synced, "a")
		failed.Store(true)
		time.Sleep(time.Hour)
		w.want(t, "it fails", &w.synced, "a")
		time.Sleep(time.Second)
		w.want(t, "it is tried again", &w.synced, "a")
		w.loop.LookAfter(set("a", "2"), time.Minute)
		time.Sleep(time.Minute)
		w.want(t, "it is asked for after a time", &w.synced, "a")
		w.loop.LookAtAll()
		w.want(t, "all are", &w.synced, "a")
	})
}

// TestTold: a status of who is gone needs no answer.
func TestTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, nil)
		if err := w.loop.Told(nil, apierrors.NewNotFound(appsv1.Resource("statefulsets"), "a")); err != nil {
			t.Errorf("who is gone: %v", err)
		}
		if err := w.loop.Told(nil, apierrors.NewConflict(appsv1.Resource("statefulsets"), "a", nil)); !apierrors.IsConflict(err) {
			t.Errorf("a conflict: %v", err)
		}
	})
}

// TestBeside: what is beside begins when the caches are filled, and has ended when the loop has.
func TestBeside(t *testing.T) {
	var began, ended atomic.Bool
	synctest.Test(t, func(t *testing.T) {
		start(t, func(c *Config[*appsv1.StatefulSet]) {
			c.Beside = func(ctx context.Context) {
				began.Store(true)
				<-ctx.Done()
				ended.Store(true)
			}
		})
		synctest.Wait()
		if !began.Load() || ended.Load() {
			t.Errorf("it has begun: %v, and ended: %v", began.Load(), ended.Load())
		}
	})
	if !ended.Load() {
		t.Error("it goes on when the loop has ended")
	}
}
