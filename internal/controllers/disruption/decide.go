package disruption

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/component-helpers/apps/poddisruptionbudget"

	"monopod.dev/monopod/internal/pods"
)

// patience is for how long a pod that an eviction has let go, or that has the condition DisruptionTarget, is expected to be deleted.
const patience = 2 * time.Minute

// Plan is what is to be done about a budget.
type Plan struct {
	// Budget has the status that it should have; nil: it has it.
	Budget *policyv1.PodDisruptionBudget
	// NotDeleted are the pods that were let go and were not deleted.
	NotDeleted []*corev1.Pod
	// Again is when something changes by time alone; 0: never.
	Again time.Duration
}

// needsScales says whether how many pods a budget wants depends on how many there should be. The others want a number, of however many there are.
func needsScales(budget *policyv1.PodDisruptionBudget) bool {
	return budget.Spec.MaxUnavailable != nil || budget.Spec.MinAvailable != nil && budget.Spec.MinAvailable.Type == intstr.String
}

// Decide says what is to be done about a budget. expected is how many pods there should be, for a budget that needs scales.
func Decide(budget *policyv1.PodDisruptionBudget, all []*corev1.Pod, expected int32, now time.Time) (Plan, error) {
	if !needsScales(budget) {
		expected = int32(len(all))
		if budget.Spec.MinAvailable == nil {
			expected = 0 // it wants nothing
		}
	}
	desired, err := desiredHealthy(&budget.Spec, expected)
	if err != nil {
		return Plan{}, err
	}
	plan, disrupted := stillLeaving(all, budget.Status.DisruptedPods, now)
	status := policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: budget.Generation, DisruptedPods: disrupted,
		CurrentHealthy: healthy(all, disrupted), DesiredHealthy: desired, ExpectedPods: expected,
	}
	// A budget that no pod belongs to lets none go: the first one may be about to come.
	if expected > 0 {
		status.DisruptionsAllowed = max(status.CurrentHealthy-desired, 0)
	}
	told := budget.DeepCopy()
	status.Conditions = told.Status.Conditions
	told.Status = status
	poddisruptionbudget.UpdateDisruptionAllowedCondition(told)
	if !equality.Semantic.DeepEqual(budget.Status, told.Status) {
		plan.Budget = told
	}
	return plan, nil
}

// Failed is a budget of which it cannot be told what it lets go, so it lets nothing go; nil: it says so already.
func Failed(budget *policyv1.PodDisruptionBudget, why error) *policyv1.PodDisruptionBudget {
	told := budget.DeepCopy()
	told.Status.DisruptionsAllowed = 0
	meta.SetStatusCondition(&told.Status.Conditions, metav1.Condition{
		Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason, Message: why.Error(),
		ObservedGeneration: told.Status.ObservedGeneration,
	})
	if equality.Semantic.DeepEqual(budget.Status, told.Status) {
		return nil
	}
	return told
}

// desiredHealthy is how many pods of those that there should be have to be healthy. Parts of a pod count as a whole one.
func desiredHealthy(spec *policyv1.PodDisruptionBudgetSpec, expected int32) (int32, error) {
	of := spec.MinAvailable
	if spec.MaxUnavailable != nil {
		of = spec.MaxUnavailable
	}
	if of == nil {
		return 0, nil
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(of, int(expected), true)
	if err != nil {
		return 0, fmt.Errorf("%s pods of %d: %w", of, expected, err)
	}
	if spec.MaxUnavailable != nil {
		return max(expected-int32(n), 0), nil
	}
	return int32(n), nil
}

// healthy is how many pods are ready, without those that are leaving.
func healthy(all []*corev1.Pod, leaving map[string]metav1.Time) (n int32) {
	for _, pod := range all {
		if _, leaves := leaving[pod.Name]; !leaves && pod.DeletionTimestamp == nil && pods.IsTrue(&pod.Status, corev1.PodReady) {
			n++
		}
	}
	return n
}

// stillLeaving are those of the pods that evictions have let go which can still be expected to be deleted. Those that are being deleted need no mention.
func stillLeaving(all []*corev1.Pod, disrupted map[string]metav1.Time, now time.Time) (plan Plan, still map[string]metav1.Time) {
	still = map[string]metav1.Time{}
	for _, pod := range all {
		at, let := disrupted[pod.Name]
		if !let || pod.DeletionTimestamp != nil {
			continue
		}
		left := at.Add(patience).Sub(now)
		if left <= 0 {
			plan.NotDeleted = append(plan.NotDeleted, pod)
			continue
		}
		still[pod.Name] = at
		if plan.Again == 0 || left < plan.Again {
			plan.Again = left
		}
	}
	return plan, still
}

// stale says whether a pod has the condition DisruptionTarget although nobody deletes it, and after which time it will have been so for too long. A kubelet
// may take as long as it likes for ending its pods, and of those that have ended the condition says why.
func stale(pod *corev1.Pod, now time.Time) (bool, time.Duration) {
	condition := pods.Condition(&pod.Status, corev1.DisruptionTarget)
	if pod.DeletionTimestamp != nil || condition == nil || condition.Status != corev1.ConditionTrue || condition.Reason == corev1.PodReasonTerminationByKubelet ||
		pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false, 0
	}
	return true, max(condition.LastTransitionTime.Add(patience).Sub(now), 0)
}
