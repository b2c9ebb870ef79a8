package registry_test

import (
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod.dev/monopod/internal/apiserver/registry/poddisruptionbudget"
)

func TestRulesOfBudgets(t *testing.T) {
	pdb := rulesOf(poddisruptionbudget.Resource())
	for name, tc := range map[string]ruleCase{
		"budget":                {pdb, "spec: {minAvailable: 2, selector: {matchLabels: {a: b}}, unhealthyPodEvictionPolicy: AlwaysAllow}", "", ""},
		"share":                 {pdb, "spec: {maxUnavailable: 100%, selector: {}}", "", ""},
		"of nothing":            {pdb, "spec: {}", "", ""},
		"both":                  {pdb, "spec: {minAvailable: 1, maxUnavailable: 1}", "", "spec: Invalid value: minAvailable and maxUnavailable"},
		"below zero":            {pdb, "spec: {minAvailable: -1}", "", "spec.minAvailable: Invalid value"},
		"no share":              {pdb, "spec: {maxUnavailable: some}", "", "spec.maxUnavailable: Invalid value"},
		"more than all":         {pdb, "spec: {maxUnavailable: 101%}", "", "spec.maxUnavailable: Invalid value"},
		"far more than all":     {pdb, "spec: {maxUnavailable: 99999999999999999999%}", "", "spec.maxUnavailable: Invalid value"},
		"selector":              {pdb, "spec: {selector: {matchLabels: {a: 'b c'}}}", "", "spec.selector.matchLabels: Invalid value"},
		"a wrong value stays":   {pdb, "spec: {minAvailable: 2, selector: {matchExpressions: [{key: a, operator: In, values: ['b c']}]}}", "spec: {selector: {matchExpressions: [{key: a, operator: In, values: ['b c']}]}}", ""},
		"unhealthy":             {pdb, "spec: {unhealthyPodEvictionPolicy: Some}", "", `spec.unhealthyPodEvictionPolicy: Unsupported value: "Some"`},
		"everything may change": {pdb, "spec: {minAvailable: 2, selector: {matchLabels: {a: c}}}", "spec: {maxUnavailable: 1, selector: {matchLabels: {a: b}}}", ""},
	} {
		t.Run(name, tc.check)
	}
}

func TestTableOfBudgets(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "x", CreationTimestamp: metav1.NewTime(time.Now().Add(-3*time.Hour - time.Second))}
	got := render(t, poddisruptionbudget.Resource().Table(), &policyv1.PodDisruptionBudgetList{Items: []policyv1.PodDisruptionBudget{
		{ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(2))}, Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1}},
		{ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromString("10%"))}},
	}}, true)
	if want := "NAME|MIN AVAILABLE|MAX UNAVAILABLE|ALLOWED DISRUPTIONS|AGE\nx|2|N/A|1|3h\nx|N/A|10%|0|3h"; got != want {
		t.Errorf("table:\n%s\nwant:\n%s", got, want)
	}
}
