package pod

import (
	"strings"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTake(t *testing.T) {
	now := time.Unix(1_000_000_000, 0)
	says := func(reason, message string) []metav1.Condition {
		return []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: reason, Message: message}}
	}
	many := map[string]metav1.Time{}
	for i := range maxDisrupted + 1 {
		many[string(rune('a'+i))] = metav1.NewTime(now)
	}
	for name, tc := range map[string]struct {
		status  policyv1.PodDisruptionBudgetStatus
		code    int32 // 0: it is allowed
		retry   int32
		message string // the cause, or else the message
	}{
		"one of two":       {policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 2, DisruptionsAllowed: 2}, 0, 0, ""},
		"the last":         {policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 2, DisruptionsAllowed: 1}, 0, 0, ""},
		"not seen yet":     {policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: 2}, 429, 10, "The disruption budget b is still being processed by the server."},
		"below zero":       {policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 2, DisruptionsAllowed: -1}, 403, 0, "below zero"},
		"too many at once": {policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 2, DisruptionsAllowed: 1, DisruptedPods: many}, 403, 0, "at most 2000"},
		"none": {policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 2, CurrentHealthy: 2, DesiredHealthy: 2}, 429, 0,
			"The disruption budget b needs 2 healthy pods and has 2 currently"},
		"none, and no numbers": {policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 2, Conditions: says(policyv1.SyncFailedReason, "no scale")}, 429, 0,
			"The disruption budget b does not allow evicting pods currently because it failed sync: no scale"},
		"none, for a reason": {policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 2, CurrentHealthy: 3, DesiredHealthy: 2, Conditions: says("Night", "sleep")}, 429, 0,
			"The disruption budget b does not allow evicting pods currently (Night): sleep"},
		"none, for no reason": {policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 2, CurrentHealthy: 3, DesiredHealthy: 2}, 429, 0,
			"The disruption budget b does not allow evicting pods currently"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b", Generation: 2}, Status: *tc.status.DeepCopy()}
			err := take(b, "p", now)
			if tc.code == 0 {
				if err != nil || b.Status.DisruptionsAllowed != tc.status.DisruptionsAllowed-1 || !b.Status.DisruptedPods["p"].Time.Equal(now) {
					t.Errorf("%v, status %+v", err, b.Status)
				}
				if none := meta.IsStatusConditionFalse(b.Status.Conditions, policyv1.DisruptionAllowedCondition); none != (b.Status.DisruptionsAllowed == 0) {
					t.Errorf("conditions %+v with %d disruptions allowed", b.Status.Conditions, b.Status.DisruptionsAllowed)
				}
				return
			}
			if b.Status.DisruptionsAllowed != tc.status.DisruptionsAllowed || len(b.Status.DisruptedPods) != len(tc.status.DisruptedPods) {
				t.Errorf("the status of a budget that refuses is %+v", b.Status)
			}
			told, ok := err.(apierrors.APIStatus)
			if !ok {
				t.Fatalf("error %v", err)
			}
			status, message := told.Status(), told.Status().Message
			if status.Code == 429 {
				if len(status.Details.Causes) != 1 || status.Details.Causes[0].Type != policyv1.DisruptionBudgetCause {
					t.Fatalf("causes %+v", status.Details.Causes)
				}
				message = status.Details.Causes[0].Message
			}
			if status.Code != tc.code || status.Details.RetryAfterSeconds != tc.retry || !strings.Contains(message, tc.message) {
				t.Errorf("%d, again after %d s, %q; want %d, %d, %q", status.Code, status.Details.RetryAfterSeconds, message, tc.code, tc.retry, tc.message)
			}
		})
	}
}
