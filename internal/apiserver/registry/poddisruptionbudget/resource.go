// Package poddisruptionbudget serves the resource poddisruptionbudgets of policy/v1 and its subresource status. What budgets forbid, the eviction of pods
// asks for (package pod).
package poddisruptionbudget

import (
	"reflect"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

// Resource is the resource poddisruptionbudgets.
func Resource() resource.Of[*policyv1.PodDisruptionBudget, *policyv1.PodDisruptionBudgetList] {
	return resource.Of[*policyv1.PodDisruptionBudget, *policyv1.PodDisruptionBudgetList]{
		Group:      policyv1.GroupName,
		Plural:     "poddisruptionbudgets",
		Short:      []string{"pdb"},
		Namespaced: true,
		ReadBy:     resource.Viewer,
		WrittenBy:  resource.Editor,
		Honours: apifields.Table{
			reflect.TypeFor[policyv1.PodDisruptionBudget]():     apifields.All("Spec").And(apifields.Left, "Status"),
			reflect.TypeFor[policyv1.PodDisruptionBudgetSpec](): apifields.All("MinAvailable", "MaxUnavailable", "Selector", "UnhealthyPodEvictionPolicy"),
		},
		Create:      validate,
		Update:      validateUpdate,
		Generation:  true,
		Status:      &resource.Status[*policyv1.PodDisruptionBudget]{Update: validateStatus},
		NamedUpdate: true,
		Columns: []resource.Column[*policyv1.PodDisruptionBudget]{
			{Name: "Name"},
			{Name: "Min Available", Doc: "The minimum number of pods that must be available.", Value: func(b *policyv1.PodDisruptionBudget) any {
				return share(b.Spec.MinAvailable)
			}},
			{Name: "Max Unavailable", Doc: "The maximum number of pods that may be unavailable.", Value: func(b *policyv1.PodDisruptionBudget) any {
				return share(b.Spec.MaxUnavailable)
			}},
			{Name: "Allowed Disruptions", Type: "integer", Doc: "Calculated number of pods that may be disrupted at this time.", Value: func(b *policyv1.PodDisruptionBudget) any {
				return int64(b.Status.DisruptionsAllowed)
			}},
			{Name: "Age"},
		},
	}
}

func share(n *intstr.IntOrString) string {
	if n == nil {
		return "N/A"
	}
	return n.String()
}
