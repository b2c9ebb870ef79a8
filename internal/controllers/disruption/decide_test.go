package disruption

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod.dev/monopod/internal/pods"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// some are pods by what follows their names: "a" is ready, "a-" is not, "a!" is ready and being deleted.
func some(names ...string) (all []*corev1.Pod) {
	for _, n := range names {
		name := strings.TrimRight(n, "-!")
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", UID: types.UID(name), Generation: 3}}
		pod.Status.Phase = corev1.PodRunning
		if !strings.HasSuffix(n, "-") {
			pods.SetCondition(&pod.Status, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}, now)
		}
		if strings.HasSuffix(n, "!") {
			pod.DeletionTimestamp = &metav1.Time{Time: now}
		}
		all = append(all, pod)
	}
	return all
}

// budget is one by its spec: "min 2", "min 50%", "max 1", "" for none of both.
func budget(t *testing.T, spec string) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "n", Generation: 2}}
	which, value, _ := strings.Cut(spec, " ")
	of := intstr.Parse(value)
	switch which {
	case "min":
		b.Spec.MinAvailable = &of
	case "max":
		b.Spec.MaxUnavailable = &of
	case "":
	default:
		t.Fatalf("spec %q", spec)
	}
	return b
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		name, spec string
		expected   int32
		pods       []*corev1.Pod
		disrupted  map[string]time.Duration
		want       string
	}{
		{"all are healthy", "min 2", 0, some("a", "b", "c"), nil, "3 of 3 healthy, 2 wanted, 1 may go: SufficientPods"},
		{"just enough", "min 3", 0, some("a", "b", "c"), nil, "3 of 3 healthy, 3 wanted, 0 may go: InsufficientPods"},
		{"too few", "min 5", 0, some("a", "b"), nil, "2 of 2 healthy, 5 wanted, 0 may go: InsufficientPods"},
		{"none is there", "min 0", 0, nil, nil, "0 of 0 healthy, 0 wanted, 0 may go: InsufficientPods"},
		{"not ready, or going", "min 1", 0, some("a", "b-", "c!"), nil, "1 of 3 healthy, 1 wanted, 0 may go: InsufficientPods"},
		{"neither field", "", 3, some("a"), nil, "1 of 0 healthy, 0 wanted, 0 may go: InsufficientPods"},

		{"a percentage of what should be there", "min 50%", 4, some("a", "b", "c"), nil, "3 of 4 healthy, 2 wanted, 1 may go: SufficientPods"},
		{"percentages are rounded up", "min 50%", 3, some("a", "b", "c"), nil, "3 of 3 healthy, 2 wanted, 1 may go: SufficientPods"},
		{"100%", "min 100%", 3, some("a", "b", "c"), nil, "3 of 3 healthy, 3 wanted, 0 may go: InsufficientPods"},
		{"0%", "min 0%", 3, some("a-", "b"), nil, "1 of 3 healthy, 0 wanted, 1 may go: SufficientPods"},
		{"nobody wants any", "min 50%", 0, some("a"), nil, "1 of 0 healthy, 0 wanted, 0 may go: InsufficientPods"},

		{"so many may be missing", "max 1", 3, some("a", "b", "c"), nil, "3 of 3 healthy, 2 wanted, 1 may go: SufficientPods"},
		{"one is missing already", "max 1", 3, some("a", "b"), nil, "2 of 3 healthy, 2 wanted, 0 may go: InsufficientPods"},
		{"none may be missing", "max 0", 3, some("a", "b", "c"), nil, "3 of 3 healthy, 3 wanted, 0 may go: InsufficientPods"},
		{"more may be missing than there are", "max 5", 3, some("a", "b", "c"), nil, "3 of 3 healthy, 0 wanted, 3 may go: SufficientPods"},
		{"a percentage may be missing, rounded up", "max 30%", 7, some("a", "b", "c", "d", "e", "f", "g"), nil, "7 of 7 healthy, 4 wanted, 3 may go: SufficientPods"},
		{"a surge", "max 1", 2, some("a", "b", "c"), nil, "3 of 2 healthy, 1 wanted, 2 may go: SufficientPods"},

		{"let go", "min 1", 0, some("a", "b", "c"), map[string]time.Duration{"a": time.Minute},
			"2 of 3 healthy, 1 wanted, 1 may go: SufficientPods; leaving a; again in 1m0s"},
		{"let go, and going", "min 1", 0, some("a!", "b", "c"), map[string]time.Duration{"a": time.Second}, "2 of 3 healthy, 1 wanted, 1 may go: SufficientPods"},
		{"let go, and gone", "min 1", 0, some("b", "c"), map[string]time.Duration{"a": time.Second}, "2 of 2 healthy, 1 wanted, 1 may go: SufficientPods"},
		{"let go, and still there", "min 1", 0, some("a", "b"), map[string]time.Duration{"a": 2 * time.Minute},
			"2 of 2 healthy, 1 wanted, 1 may go: SufficientPods; not deleted a"},
		{"several were let go", "max 3", 3, some("a", "b", "c"), map[string]time.Duration{"a": 90 * time.Second, "b": time.Second, "c": 3 * time.Minute},
			"1 of 3 healthy, 0 wanted, 1 may go: SufficientPods; leaving a b; not deleted c; again in 30s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := budget(t, c.spec)
			for name, d := range c.disrupted {
				if b.Status.DisruptedPods == nil {
					b.Status.DisruptedPods = map[string]metav1.Time{}
				}
				b.Status.DisruptedPods[name] = ago(d)
			}
			p, err := Decide(b, c.pods, c.expected, now)
			if err != nil {
				t.Fatal(err)
			}
			if p.Budget == nil {
				t.Fatal("the status stays")
			}
			if got := tell(p); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if p.Budget.Status.ObservedGeneration != 2 || b.Status.ObservedGeneration != 0 {
				t.Errorf("observed %d, and in the cache %d", p.Budget.Status.ObservedGeneration, b.Status.ObservedGeneration)
			}
			// Said once, it stays.
			if again, err := Decide(p.Budget, c.pods, c.expected, now); err != nil || again.Budget != nil {
				t.Errorf("told again: %v %v", again.Budget, err)
			}
		})
	}
}

func tell(p Plan) string {
	st := p.Budget.Status
	s := fmt.Sprintf("%d of %d healthy, %d wanted, %d may go: ", st.CurrentHealthy, st.ExpectedPods, st.DesiredHealthy, st.DisruptionsAllowed)
	condition := meta.FindStatusCondition(st.Conditions, policyv1.DisruptionAllowedCondition)
	if (condition.Status == metav1.ConditionTrue) != (st.DisruptionsAllowed > 0) || condition.ObservedGeneration != 2 || len(st.Conditions) != 1 {
		s += fmt.Sprintf("%+v ", st.Conditions)
	}
	s += condition.Reason
	var leaving, stayed []string
	for name := range st.DisruptedPods {
		leaving = append(leaving, name)
	}
	for _, pod := range p.NotDeleted {
		stayed = append(stayed, pod.Name)
	}
	slices.Sort(leaving)
	if len(leaving) > 0 {
		s += "; leaving " + strings.Join(leaving, " ")
	}
	if len(stayed) > 0 {
		s += "; not deleted " + strings.Join(stayed, " ")
	}
	if p.Again > 0 {
		s += fmt.Sprintf("; again in %v", p.Again)
	}
	return s
}

func TestDecideUnreadable(t *testing.T) {
	if p, err := Decide(budget(t, "min many"), some("a"), 1, now); err == nil {
		t.Errorf("a share that is none: %+v", p.Budget)
	}
}

// TestFailed: a budget of which nothing can be told lets nothing go, and says the rest as before.
func TestFailed(t *testing.T) {
	p, err := Decide(budget(t, "max 1"), some("a", "b"), 2, now)
	if err != nil {
		t.Fatal(err)
	}
	b := p.Budget
	told := Failed(b, errors.New("no owner"))
	condition := meta.FindStatusCondition(told.Status.Conditions, policyv1.DisruptionAllowedCondition)
	if told.Status.DisruptionsAllowed != 0 || told.Status.CurrentHealthy != 2 || condition.Status != metav1.ConditionFalse || condition.Reason != "SyncFailed" || condition.Message != "no owner" {
		t.Errorf("%+v", told.Status)
	}
	if b.Status.DisruptionsAllowed != 1 || b.Status.Conditions[0].Reason != "SufficientPods" {
		t.Errorf("the cache's has changed: %+v", b.Status)
	}
	if again := Failed(told, errors.New("no owner")); again != nil {
		t.Errorf("told again: %+v", again.Status)
	}
}

func TestStale(t *testing.T) {
	mark := func(since time.Duration, change ...func(*corev1.Pod)) *corev1.Pod {
		pod := some("a")[0]
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", LastTransitionTime: ago(since),
		}}
		for _, c := range change {
			c(pod)
		}
		return pod
	}
	for _, c := range []struct {
		name  string
		pod   *corev1.Pod
		stale bool
		after time.Duration
	}{
		{"no condition", some("a")[0], false, 0},
		{"just so", mark(0), true, 2 * time.Minute},
		{"for a while", mark(90 * time.Second), true, 30 * time.Second},
		{"for too long", mark(time.Hour), true, 0},
		{"False", mark(time.Hour, func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }), false, 0},
		{"being deleted", mark(time.Hour, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }), false, 0},
		{"has ended", mark(time.Hour, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), false, 0},
		{"a kubelet's", mark(time.Hour, func(p *corev1.Pod) { p.Status.Conditions[0].Reason = corev1.PodReasonTerminationByKubelet }), false, 0},
	} {
		if stale, after := stale(c.pod, now); stale != c.stale || after != c.after {
			t.Errorf("%s: %v after %v, want %v after %v", c.name, stale, after, c.stale, c.after)
		}
	}
}
