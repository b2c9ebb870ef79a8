package apiserver_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

// evictions are pods and budgets of a namespace. No controller runs: a budget's status is what the test says.
type evictions struct {
	*testing.T
	kubernetes.Interface
}

// pod makes a pod on the node n; its phase is none while that is empty.
func (e evictions) pod(name string, phase corev1.PodPhase, ready bool) *corev1.Pod {
	e.Helper()
	pod, err := e.CoreV1().Pods("default").Create(e.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
	pod.Status.Phase = phase
	if ready {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	if pod, err = e.CoreV1().Pods("default").UpdateStatus(e.Context(), pod, metav1.UpdateOptions{}); err != nil {
		e.Fatal(err)
	}
	return pod
}

// budget makes, or changes, the budget of the pods that says of itself what status does.
func (e evictions) budget(name string, status policyv1.PodDisruptionBudgetStatus, policy ...policyv1.UnhealthyPodEvictionPolicyType) {
	e.Helper()
	all, one := e.PolicyV1().PodDisruptionBudgets("default"), intstr.FromInt32(1)
	b, err := all.Get(e.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		b = &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		}}
		for i := range policy {
			b.Spec.UnhealthyPodEvictionPolicy = &policy[i]
		}
		b, err = all.Create(e.Context(), b, metav1.CreateOptions{})
	}
	if err != nil {
		e.Fatal(err)
	}
	status.ObservedGeneration = b.Generation
	b.Status = status
	if _, err := all.UpdateStatus(e.Context(), b, metav1.UpdateOptions{}); err != nil {
		e.Fatal(err)
	}
}

func (e evictions) evict(name string, options metav1.DeleteOptions) error {
	return e.PolicyV1().Evictions("default").Evict(e.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, DeleteOptions: &options})
}

// clear removes all pods and budgets.
func (e evictions) clear() {
	e.Helper()
	if err := e.PolicyV1().PodDisruptionBudgets("default").DeleteCollection(e.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		e.Fatal(err)
	}
	if err := e.CoreV1().Pods("default").DeleteCollection(e.Context(), *metav1.NewDeleteOptions(0), metav1.ListOptions{}); err != nil {
		e.Fatal(err)
	}
}

// code is that of the API's answer, 0 for success.
func code(err error) int32 {
	if status, ok := err.(apierrors.APIStatus); ok {
		return status.Status().Code
	}
	return 0
}

func TestEvictionWithBudgets(t *testing.T) {
	i := start(t, newConfig(t))
	defer i.end(t)
	client := i.admin(t)
	allows := func(n int32) policyv1.PodDisruptionBudgetStatus {
		return policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: n, CurrentHealthy: 1 + n, DesiredHealthy: 1, ExpectedPods: 3}
	}
	short := policyv1.PodDisruptionBudgetStatus{DesiredHealthy: 2, CurrentHealthy: 1}
	for name, tc := range map[string]struct {
		phase   corev1.PodPhase
		ready   bool
		status  policyv1.PodDisruptionBudgetStatus
		policy  policyv1.UnhealthyPodEvictionPolicyType
		code    int32
		counted bool
	}{
		"allowed":                      {corev1.PodRunning, true, allows(1), policyv1.IfHealthyBudget, 0, true},
		"not allowed":                  {corev1.PodRunning, true, allows(0), policyv1.AlwaysAllow, 429, false},
		"pending":                      {corev1.PodPending, false, allows(0), policyv1.IfHealthyBudget, 0, false},
		"ended":                        {corev1.PodFailed, false, allows(0), policyv1.IfHealthyBudget, 0, false},
		"not ready, enough others":     {corev1.PodRunning, false, allows(0), policyv1.IfHealthyBudget, 0, false},
		"not ready, not enough":        {corev1.PodRunning, false, short, policyv1.IfHealthyBudget, 429, false},
		"not ready, which is no good":  {corev1.PodRunning, false, short, policyv1.AlwaysAllow, 0, false},
		"not ready, of those to count": {corev1.PodRunning, false, policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1, DesiredHealthy: 0}, policyv1.IfHealthyBudget, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			e := evictions{t, client}
			defer e.clear()
			e.pod("p", tc.phase, tc.ready)
			e.budget("b", tc.status, tc.policy)
			for _, options := range []metav1.DeleteOptions{{DryRun: []string{metav1.DryRunAll}}, {}} {
				if err := e.evict("p", options); code(err) != tc.code {
					t.Errorf("dry run %q: %v, want the code %d", options.DryRun, err, tc.code)
				} else if err != nil && !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
					t.Errorf("the error has no cause: %v", err)
				}
				b, err := client.PolicyV1().PodDisruptionBudgets("default").Get(t.Context(), "b", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				want := tc.status.DisruptionsAllowed
				if tc.counted && len(options.DryRun) == 0 {
					want--
				}
				if _, named := b.Status.DisruptedPods["p"]; b.Status.DisruptionsAllowed != want || named != (want != tc.status.DisruptionsAllowed) {
					t.Errorf("dry run %q: the budget's status is %+v, want %d disruptions allowed", options.DryRun, b.Status, want)
				}
			}
			pod, err := client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
			gone := apierrors.IsNotFound(err) || err == nil && pod.DeletionTimestamp != nil
			if gone != (tc.code == 0) {
				t.Errorf("the pod is %+v, %v", pod.ObjectMeta, err)
			}
		})
	}

	t.Run("two budgets", func(t *testing.T) {
		e := evictions{t, client}
		defer e.clear()
		e.pod("p", corev1.PodRunning, true)
		e.budget("a", allows(1))
		e.budget("b", allows(1))
		if err := e.evict("p", metav1.DeleteOptions{}); code(err) != 500 || !strings.Contains(err.Error(), "more than one PodDisruptionBudget") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("another pod", func(t *testing.T) {
		e := evictions{t, client}
		defer e.clear()
		pod := e.pod("p", corev1.PodRunning, true)
		e.budget("b", allows(1))
		for _, wanted := range []*metav1.Preconditions{metav1.NewUIDPreconditions("other"), {ResourceVersion: new("1")}} {
			if err := e.evict("p", metav1.DeleteOptions{Preconditions: wanted}); !apierrors.IsConflict(err) {
				t.Errorf("error %v", err)
			}
		}
		// What nobody evicts takes nothing from the budget.
		if err := e.evict("p", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}}); err != nil {
			t.Error(err)
		}
	})
	t.Run("many at once", func(t *testing.T) {
		e := evictions{t, client}
		defer e.clear()
		names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		for _, name := range names {
			e.pod(name, corev1.PodRunning, true)
		}
		e.budget("b", allows(3))
		codes := make([]int32, len(names))
		var wait sync.WaitGroup
		for i, name := range names {
			wait.Go(func() { codes[i] = code(e.evict(name, metav1.DeleteOptions{})) })
		}
		wait.Wait()
		slices.Sort(codes)
		if want := []int32{0, 0, 0, 429, 429, 429, 429, 429}; !slices.Equal(codes, want) {
			t.Errorf("codes %v, want %v: a budget of 3", codes, want)
		}
	})
	t.Run("kubectl drain", func(t *testing.T) {
		e := evictions{t, client}
		defer e.clear()
		if _, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		e.pod("p", corev1.PodRunning, true)
		e.budget("b", allows(0))
		drained := i.kubectl(t).begin("drain", "n", "--force", "--grace-period=0", "--timeout=120s")
		drained.await("Cannot evict pod as it would violate the pod's disruption budget.")
		e.budget("b", allows(1))
		drained.end()
		if _, err := client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the drained pod: %v", err)
		}
	})
}

// process is a kubectl that runs.
type process struct {
	*testing.T
	cmd *exec.Cmd

	mu   sync.Mutex
	out  bytes.Buffer
	told chan struct{} // has room for one word that there is more in out
}

// begin runs kubectl beside the test.
func (k kubectl) begin(args ...string) *process {
	k.t.Helper()
	path, err := kubectlPath()
	if err != nil {
		k.t.Fatal(err)
	}
	p := &process{T: k.t.(*testing.T), cmd: exec.CommandContext(k.t.Context(), path, args...), told: make(chan struct{}, 1)}
	p.cmd.Env = []string{"KUBECONFIG=" + k.kubeconfig, "HOME=" + k.home, "PATH=" + os.Getenv("PATH")}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	return p
}

// Write implements io.Writer, for what the process prints.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.Write(b)
	select {
	case p.told <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (p *process) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// await waits until the process has printed some words.
func (p *process) await(words string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), 2*time.Minute)
	defer cancel()
	for !strings.Contains(p.printed(), words) {
		select {
		case <-p.told:
		case <-ctx.Done():
			p.Fatalf("kubectl has not said %q but %q", words, p.printed())
		}
	}
}

// end waits for the process, which must succeed.
func (p *process) end() {
	p.Helper()
	if err := p.cmd.Wait(); err != nil {
		p.Errorf("kubectl: %v: %s", err, p.printed())
	}
}
