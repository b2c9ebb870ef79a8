package status

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
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
		w.Set(p, st)
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
	w.Set(pod("u"), v1.PodStatus{Phase: v1.PodRunning})
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
			w.Set(pod("old"), v1.PodStatus{Phase: v1.PodRunning})
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
	w.Set(p, st)
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
	w.Set(p, p.Status)
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
				w.Set(p, at(p, "", creating))
				w.Set(p, at(p, "10.0.0.1", creating))
				if n := patches(); n != 0 {
					t.Errorf("%d statuses were written at once", n)
				}
				w.Set(p, c.last(p))
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

// Who waits for a status has it written at once.
func TestFlushHurries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pod("u")
		w, _, _ := start(t, p)
		began := time.Now()
		st := *p.Status.DeepCopy()
		st.PodIP = "10.0.0.1"
		w.Set(p, st)
		flush(t, w, p.UID)
		if took := time.Since(began); took >= moment {
			t.Errorf("written after %v", took)
		}
	})
}
