package pod

import (
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/apps/poddisruptionbudget"

	"monopod.dev/monopod/internal/pods"
)

const (
	// maxDisrupted is how many pods may be on their way out that the controller of budgets has not seen yet.
	maxDisrupted = 2000
	// soonSeconds is when a client is to ask again where the controller has to look at the budget first.
	soonSeconds = 10
)

// Budgets are the PodDisruptionBudgets, whose statuses the evictions take from.
type Budgets interface {
	// List are those of a namespace, as they are in the store.
	List(ctx context.Context, namespace string) ([]policyv1.PodDisruptionBudget, error)
	// ChangeStatus writes what change makes of a budget's newest status; change may be called more than once, and its error is returned as it is. With
	// dryRun nothing is written.
	ChangeStatus(ctx context.Context, namespace, name string, dryRun []string, change func(*policyv1.PodDisruptionBudget) error) error
}

// leave says how a pod may go.
type leave struct {
	// pinned: only as it was looked at.
	pinned bool
	// budget is the one that lets a pod go that is not ready anyway.
	budget string
}

// permit asks the budget that is about a pod whether it may go, and takes it from what the budget allows. A pod that has ended or is about to, or has not
// run yet, counts for no budget, and one that is not ready only where the budget says so.
func (r *EvictionREST) permit(ctx context.Context, pod *corev1.Pod, dryRun []string) (leave, error) {
	switch {
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || pod.DeletionTimestamp != nil:
		return leave{}, nil
	case pod.Status.Phase == corev1.PodPending:
		return leave{pinned: true}, nil // or it may have become ready meanwhile
	}
	budget, err := r.budgetOf(ctx, pod)
	if err != nil || budget == nil {
		return leave{}, err
	}
	if !pods.IsTrue(&pod.Status, corev1.PodReady) && letsUnhealthyGo(budget) {
		return leave{pinned: true, budget: budget.Name}, nil
	}
	err = r.budgets.ChangeStatus(ctx, pod.Namespace, budget.Name, dryRun, func(b *policyv1.PodDisruptionBudget) error {
		return take(b, pod.Name, time.Now())
	})
	if apierrors.IsNotFound(err) { // the budget is gone; an error of that kind would say that the pod is
		err = nil
	}
	return leave{}, err
}

// budgetOf is the budget that is about a pod; nil: there is none.
func (r *EvictionREST) budgetOf(ctx context.Context, pod *corev1.Pod) (*policyv1.PodDisruptionBudget, error) {
	all, err := r.budgets.List(ctx, pod.Namespace)
	if err != nil {
		return nil, err
	}
	var found *policyv1.PodDisruptionBudget
	for i := range all {
		selector, err := metav1.LabelSelectorAsSelector(all[i].Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(pod.Labels)) { // one that cannot be read selects nothing
			continue
		}
		if found != nil {
			return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError,
				Message: fmt.Sprintf("This pod has more than one PodDisruptionBudget (%s, %s), which the eviction subresource does not support.", found.Name, all[i].Name),
			}}
		}
		found = &all[i]
	}
	return found, nil
}

// letsUnhealthyGo: a pod that is not ready may go without being counted, because the budget says so, or because there are enough of the others.
func letsUnhealthyGo(b *policyv1.PodDisruptionBudget) bool {
	if policy := b.Spec.UnhealthyPodEvictionPolicy; policy != nil && *policy == policyv1.AlwaysAllow {
		return true
	}
	return b.Status.DesiredHealthy > 0 && b.Status.CurrentHealthy >= b.Status.DesiredHealthy
}

// take lets a pod go by a budget's status: it allows one less, and names the pod, so that the budget's controller does not count it while it still is there.
func take(b *policyv1.PodDisruptionBudget, pod string, now time.Time) error {
	forbidden := func(format string, args ...any) error {
		return apierrors.NewForbidden(policyv1.Resource("poddisruptionbudget"), b.Name, fmt.Errorf(format, args...))
	}
	status := &b.Status
	switch {
	case status.ObservedGeneration < b.Generation:
		return tooSoon(b.Name)
	case status.DisruptionsAllowed < 0:
		return forbidden("it allows %d disruptions, which is below zero", status.DisruptionsAllowed)
	case len(status.DisruptedPods) > maxDisrupted:
		return forbidden("%d evicted pods were not seen yet by the controller of budgets, at most %d may be", len(status.DisruptedPods), maxDisrupted)
	case status.DisruptionsAllowed == 0:
		return tooMany(0, why(b))
	}
	if status.DisruptionsAllowed--; status.DisruptionsAllowed == 0 {
		poddisruptionbudget.UpdateDisruptionAllowedCondition(b)
	}
	if status.DisruptedPods == nil {
		status.DisruptedPods = map[string]metav1.Time{}
	}
	status.DisruptedPods[pod] = metav1.NewTime(now)
	return nil
}

// why says why a budget allows nothing.
func why(b *policyv1.PodDisruptionBudget) string {
	refuses := "The disruption budget " + b.Name + " does not allow evicting pods currently"
	condition := meta.FindStatusCondition(b.Status.Conditions, policyv1.DisruptionAllowedCondition)
	told := condition != nil && condition.Status == metav1.ConditionFalse && condition.Message != ""
	switch {
	case told && condition.Reason == policyv1.SyncFailedReason: // then its numbers say nothing
		return refuses + " because it failed sync: " + condition.Message
	case b.Status.CurrentHealthy <= b.Status.DesiredHealthy:
		return fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", b.Name, b.Status.DesiredHealthy, b.Status.CurrentHealthy)
	case told:
		return fmt.Sprintf("%s (%s): %s", refuses, condition.Reason, condition.Message)
	}
	return refuses
}

// tooSoon is for a budget that its controller has to look at first.
func tooSoon(budget string) error {
	return tooMany(soonSeconds, "The disruption budget "+budget+" is still being processed by the server.")
}

// tooMany is the answer (429) to an eviction that a budget does not allow. Clients ask again after that many seconds, or when they like.
func tooMany(seconds int, cause string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", seconds)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: cause})
	return err
}
