// Package priorityclass serves the resource priorityclasses of scheduling.k8s.io/v1.
package priorityclass

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

// Resource is the resource priorityclasses.
func Resource() resource.Of[*schedulingv1.PriorityClass, *schedulingv1.PriorityClassList] {
	doc := schedulingv1.PriorityClass{}.SwaggerDoc()
	return resource.Of[*schedulingv1.PriorityClass, *schedulingv1.PriorityClassList]{
		Group:          schedulingv1.GroupName,
		Plural:         "priorityclasses",
		Short:          []string{"pc"},
		CreateOnUpdate: true,
		Honours: apifields.Table{
			reflect.TypeFor[schedulingv1.PriorityClass](): apifields.All("Value", "GlobalDefault", "Description", "PreemptionPolicy"),
		},
		Default: setDefaults,
		Create:  validate,
		Update:  validateUpdate,
		Columns: []resource.Column[*schedulingv1.PriorityClass]{
			{Name: "Name"},
			{Name: "Value", Type: "integer", Doc: doc["value"], Value: func(c *schedulingv1.PriorityClass) any { return int64(c.Value) }},
			{Name: "Global-Default", Type: "boolean", Doc: doc["globalDefault"], Value: func(c *schedulingv1.PriorityClass) any { return c.GlobalDefault }},
			{Name: "Age"},
			{Name: "PreemptionPolicy", Doc: doc["preemptionPolicy"], Value: func(c *schedulingv1.PriorityClass) any {
				if c.PreemptionPolicy == nil {
					return resource.Unknown
				}
				return string(*c.PreemptionPolicy)
			}},
		},
	}
}

func setDefaults(c *schedulingv1.PriorityClass) {
	if c.PreemptionPolicy == nil {
		lower := corev1.PreemptLowerPriority
		c.PreemptionPolicy = &lower
	}
}

// System are the classes that every cluster has. No other has a name that begins as theirs do, or a value above HighestUserValue.
func System() []*schedulingv1.PriorityClass {
	classes := []*schedulingv1.PriorityClass{
		{
			ObjectMeta: metav1.ObjectMeta{Name: "system-node-critical"}, Value: 2*HighestUserValue + 1000,
			Description: "For pods of the system that must not go from their node.",
		},
		{
			ObjectMeta: metav1.ObjectMeta{Name: "system-cluster-critical"}, Value: 2 * HighestUserValue,
			Description: "For pods of the system that the cluster must have, on whatever node.",
		},
	}
	for _, c := range classes {
		setDefaults(c)
	}
	return classes
}
