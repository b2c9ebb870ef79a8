package registry_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/registry/workload"
	"monopod.dev/monopod/internal/pods/defaults"
)

func summary(errs field.ErrorList) (all []string) {
	for _, err := range errs {
		all = append(all, err.Field+" "+string(err.Type))
	}
	return all
}

func TestCountsOfWorkloads(t *testing.T) {
	at := field.NewPath("status")
	for name, tc := range map[string]struct {
		counts workload.Counts
		want   []string
	}{
		"none":             {workload.Counts{}, nil},
		"all":              {workload.Counts{Replicas: 3, Ready: 3, Available: 3, Parts: []workload.Number{workload.Of("updatedReplicas", int32(3))}}, nil},
		"others are more":  {workload.Counts{Others: []workload.Number{workload.Of("observedGeneration", int64(9))}}, nil},
		"negative":         {workload.Counts{Replicas: -1, Ready: -1, Available: -1}, []string{"status.replicas FieldValueInvalid", "status.readyReplicas FieldValueInvalid", "status.availableReplicas FieldValueInvalid"}},
		"others negative":  {workload.Counts{Others: []workload.Number{workload.Optional("collisionCount", new(int32(-1)))}}, []string{"status.collisionCount FieldValueInvalid"}},
		"more than all":    {workload.Counts{Replicas: 1, Ready: 2, Parts: []workload.Number{workload.Of("updatedReplicas", int32(2))}}, []string{"status.readyReplicas FieldValueInvalid", "status.updatedReplicas FieldValueInvalid"}},
		"more than ready":  {workload.Counts{Replicas: 2, Ready: 1, Available: 2}, []string{"status.availableReplicas FieldValueInvalid"}},
		"more than either": {workload.Counts{Available: 1}, []string{"status.availableReplicas FieldValueInvalid", "status.availableReplicas FieldValueInvalid"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := summary(tc.counts.Validate(at)); !slices.Equal(got, tc.want) {
				t.Errorf("errors %q, want %q", got, tc.want)
			}
		})
	}
}

func TestCollisionsOfWorkloadsAreCountedUp(t *testing.T) {
	for _, tc := range []struct {
		count, old *int32
		wrong      bool
	}{{nil, nil, false}, {new(int32(1)), nil, false}, {new(int32(1)), new(int32(1)), false}, {nil, new(int32(0)), true}, {new(int32(0)), new(int32(1)), true}} {
		if errs := workload.NotDecremented(tc.count, tc.old, field.NewPath("status")); len(errs) > 0 != tc.wrong {
			t.Errorf("%v after %v: %v", tc.count, tc.old, errs)
		}
	}
}

// A selector that is left out is told of, and that it selects nothing: which of the two is to be changed is not for the server to say.
func TestSelectorOfWorkloadsIsRequired(t *testing.T) {
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	defaults.Template(template)
	selects, errs := workload.RequireSelector(nil, "deployment", field.NewPath("selector"))
	errs = append(errs, workload.ValidateTemplate(template, nil, selects, "Deployment", field.NewPath("template"))...)
	if got, want := summary(errs), []string{"selector FieldValueRequired", "template.metadata.labels FieldValueInvalid"}; !slices.Equal(got, want) {
		t.Errorf("errors %q, want %q", got, want)
	}
	// One that cannot be read is told of once.
	selects, errs = workload.RequireSelector(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}, "deployment", field.NewPath("selector"))
	errs = append(errs, workload.ValidateTemplate(template, nil, selects, "Deployment", field.NewPath("template"))...)
	if got, want := summary(errs), []string{"selector.matchExpressions[0].operator FieldValueInvalid"}; !slices.Equal(got, want) {
		t.Errorf("errors %q, want %q", got, want)
	}
}
