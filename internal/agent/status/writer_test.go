package status

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pod(uid string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: types.UID(uid), ResourceVersion: "5"}, Status: v1.PodStatus{
		Phase: v1.PodPending, Conditions: []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue}},
	}}
}

func TestPatch(t *testing.T) {
	base := pod("u")
	if p, err := Patch(base, base.Status); p != nil || err != nil {
		t.Errorf("no difference: %s, %v", p, err)
	}
	want := *base.Status.DeepCopy()
	want.Phase = v1.PodRunning
	want.Conditions = append(want.Conditions, v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue})
	p, err := Patch(base, want)
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Metadata struct{ UID string }
		Status   struct {
			Phase      string
			Conditions []struct{ Type string }
		}
	}
	if err := json.Unmarshal(p, &m); err != nil {
		t.Fatal(err)
	}
	if m.Metadata.UID != "u" || m.Status.Phase != "Running" || len(m.Status.Conditions) != 1 || m.Status.Conditions[0].Type != "Ready" {
		t.Errorf("patch %s", p)
	}
}

// start runs a writer against a fake API server whose patches fail with err as long as that is set.
func start(t *testing.T, objects ...runtime.Object) (*Writer, *fake.Clientset, *atomic.Pointer[error]) {
	kube := fake.NewClientset(objects...)
	var fail atomic.Pointer[error]
	kube.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		if err := fail.Load(); err != nil {
			return true, nil, *err
		}
		return false, nil, nil
	})
	w := New(kube, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return w, kube, &fail
}

func flush(t *testing.T, w *Writer, uid types.UID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := w.Flush(ctx, uid); err != nil {
		t.Fatal(err)
	}
}

func TestTheLastStatusIsWritten(t *testing.T) {
	p := pod("u")
	w, kube, fail := start(t, p)
	err := errors.New("away")
	fail.Store(&err)
	for _, phase := range []v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodSucceeded} {
		st := *p.Status.DeepCopy()
		st.Phase = phase
		w.Set(p, st, false)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := w.Flush(ctx, p.UID); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("flushed while the API server is away: %v", err)
	}
	fail.Store(nil)
	flush(t, w, p.UID)
	got, gerr := kube.CoreV1().Pods("ns").Get(t.Context(), "p", metav1.GetOptions{})
	if gerr != nil || got.Status.Phase != v1.PodSucceeded || len(got.Status.Conditions) != 1 {
		t.Errorf("status %+v, %v", got.Status, gerr)
	}
}

func TestAPodThatIsGone(t *testing.T) {
	w, _, _ := start(t)
	w.Set(pod("u"), v1.PodStatus{Phase: v1.PodRunning}, false)
	flush(t, w, "u")
	w.Forget("u")
	flush(t, w, "never seen")
}

// TestAPodThatWasMadeAnew: that another pod has the name is found out at the first attempt, however the API server says so; the other one's status is
// left alone.
func TestAPodThatWasMadeAnew(t *testing.T) {
	kind := schema.GroupKind{Kind: "Pod"}
	for name, refusal := range map[string]error{
		"an immutable field": apierrors.NewInvalid(kind, "p", field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), "old", "field is immutable")}),
		"a conflict":         apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p", errors.New("the UID is another's")),
	} {
		t.Run(name, func(t *testing.T) {
			w, kube, fail := start(t, pod("new"))
			fail.Store(&refusal)
			w.Set(pod("old"), v1.PodStatus{Phase: v1.PodRunning}, false)
			flush(t, w, "old")
			patches := 0
			for _, a := range kube.Actions() {
				if a.GetVerb() == "patch" {
					patches++
				}
			}
			if patches != 1 {
				t.Errorf("%d attempts", patches)
			}
		})
	}
}

// TestAConflict: another writer was faster; the pod is still the same one, so its status is written.
func TestAConflict(t *testing.T) {
	p := pod("u")
	w, kube, fail := start(t, p)
	conflict := error(apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p", errors.New("the object has been modified")))
	fail.Store(&conflict)
	asked := make(chan struct{})
	var once sync.Once
	kube.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		once.Do(func() { close(asked) })
		return false, nil, nil
	})
	st := *p.Status.DeepCopy()
	st.Phase = v1.PodRunning
	w.Set(p, st, false)
	<-asked
	fail.Store(nil)
	flush(t, w, p.UID)
	if got, err := kube.CoreV1().Pods("ns").Get(t.Context(), "p", metav1.GetOptions{}); err != nil || got.Status.Phase != v1.PodRunning {
		t.Errorf("status %+v, %v", got.Status, err)
	}
}

func TestNothingToWrite(t *testing.T) {
	p := pod("u")
	w, kube, _ := start(t, p)
	w.Set(p, p.Status, false)
	flush(t, w, p.UID)
	for _, a := range kube.Actions() {
		t.Errorf("asked the API server to %s", a.GetVerb())
	}
}

// TestAStartIsWrittenOnce: what only says that a start goes on waits a moment for what comes of it, and for no longer.
func TestAStartIsWrittenOnce(t *testing.T) {
	creating := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	at := func(p *v1.Pod, ip string, state v1.ContainerState) v1.PodStatus {
		st := *p.Status.DeepCopy()
		st.PodIP, st.ContainerStatuses = ip, []v1.ContainerStatus{{Name: "c", State: state}}
		return st
	}
	for name, c := range map[string]struct {
		last  func(*v1.Pod) v1.PodStatus
		after time.Duration
	}{
		"it runs": {func(p *v1.Pod) v1.PodStatus {
			st := at(p, "10.0.0.1", v1.ContainerState{Running: &v1.ContainerStateRunning{}})
			st.Phase = v1.PodRunning
			return st
		}, 0},
		"its image is not to be had": {func(p *v1.Pod) v1.PodStatus {
			return at(p, "10.0.0.1", v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no"}})
		}, 0},
		"it takes longer": {func(p *v1.Pod) v1.PodStatus { return at(p, "10.0.0.1", creating) }, moment},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := pod("u")
				w, kube, _ := start(t, p)
				patches := func() (n int) {
					synctest.Wait()
					for _, a := range kube.Actions() {
						if a.GetVerb() == "patch" {
							n++
						}
					}
					return n
				}
				w.Set(p, at(p, "", creating), false)
				w.Set(p, at(p, "10.0.0.1", creating), false)
				if n := patches(); n != 0 {
					t.Errorf("%d statuses were written at once", n)
				}
				w.Set(p, c.last(p), false)
				<-time.After(c.after)
				if n := patches(); n != 1 {
					t.Errorf("%d statuses were written after %v, want one", n, c.after)
				}
				<-time.After(time.Minute)
				got, err := kube.CoreV1().Pods("ns").Get(t.Context(), "p", metav1.GetOptions{})
				if n := patches(); err != nil || n != 1 || got.Status.PodIP != "10.0.0.1" {
					t.Errorf("%d statuses, in the end %+v, %v", n, got, err)
				}
			})
		})
	}
}

// TestWhatIsPassing: a container that is replaced goes from one that runs to one that runs in a single write when that takes less than a moment; what takes
// longer is told after it, and other news at once, with all there is to tell.
func TestWhatIsPassing(t *testing.T) {
	at := func(id string, state v1.ContainerState) v1.PodStatus {
		ready := v1.ConditionFalse
		if state.Running != nil {
			ready = v1.ConditionTrue
		}
		return v1.PodStatus{
			Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: ready}},
			ContainerStatuses: []v1.ContainerStatus{{Name: "c", ContainerID: id, State: state}},
		}
	}
	runs := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	waits := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	fails := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no"}}
	type step struct {
		after   time.Duration
		st      v1.PodStatus
		passing bool
	}
	for name, c := range map[string]struct {
		steps []step
		delay time.Duration // of the last write, after the last step
		want  []v1.ConditionStatus
	}{
		"it runs again":  {[]step{{0, at("1", waits), true}, {moment / 2, at("2", waits), true}, {moment / 4, at("2", runs), false}}, 0, []v1.ConditionStatus{v1.ConditionTrue}},
		"it takes long":  {[]step{{0, at("1", waits), true}, {moment / 2, at("2", waits), true}}, moment / 2, []v1.ConditionStatus{v1.ConditionFalse}},
		"it runs late":   {[]step{{0, at("1", waits), true}, {2 * moment, at("2", runs), false}}, 0, []v1.ConditionStatus{v1.ConditionFalse, v1.ConditionTrue}},
		"it cannot be":   {[]step{{0, at("1", waits), true}, {moment / 2, at("1", fails), false}}, 0, []v1.ConditionStatus{v1.ConditionFalse}},
		"it is no start": {[]step{{0, at("1", waits), false}}, 0, []v1.ConditionStatus{v1.ConditionFalse}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := pod("u")
				p.Status = at("1", runs)
				w, kube, _ := start(t, p)
				var told []v1.ConditionStatus
				kube.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
					var m v1.Pod
					if err := json.Unmarshal(a.(clienttesting.PatchAction).GetPatch(), &m); err != nil {
						t.Error(err)
					}
					ready := v1.ConditionTrue // of which the patch tells when it is another than before
					if len(m.Status.Conditions) > 0 {
						ready = m.Status.Conditions[0].Status
					}
					told = append(told, ready)
					return false, nil, nil
				})
				for _, s := range c.steps {
					<-time.After(s.after)
					w.Set(p, s.st, s.passing)
					synctest.Wait()
				}
				began := time.Now()
				flushed := len(told)
				<-time.After(c.delay)
				synctest.Wait()
				if c.delay > 0 && (flushed != 0 || len(told) != 1) {
					t.Errorf("%d writes before %v, %d after it", flushed, c.delay, len(told))
				}
				if !slices.Equal(told, c.want) {
					t.Errorf("told that it is ready: %v, want %v", told, c.want)
				}
				<-time.After(time.Minute)
				if len(told) != len(c.want) {
					t.Errorf("%d writes %v later", len(told), time.Since(began))
				}
			})
		})
	}
}

// Who waits for a status has it written at once.
func TestFlushHurries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pod("u")
		w, _, _ := start(t, p)
		began := time.Now()
		st := *p.Status.DeepCopy()
		st.PodIP = "10.0.0.1"
		w.Set(p, st, false)
		flush(t, w, p.UID)
		if took := time.Since(began); took >= moment {
			t.Errorf("written after %v", took)
		}
	})
}
