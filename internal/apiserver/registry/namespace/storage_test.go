package namespace

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestCollectorFinalizers(t *testing.T) {
	policy := func(p metav1.DeletionPropagation) *metav1.DeleteOptions {
		return &metav1.DeleteOptions{PropagationPolicy: &p}
	}
	orphan := func(o bool) *metav1.DeleteOptions { return &metav1.DeleteOptions{OrphanDependents: &o} } //nolint:staticcheck // older clients say it so
	for name, tc := range map[string]struct {
		options *metav1.DeleteOptions
		want    []string // beside the foreign one
	}{
		"no wish":    {&metav1.DeleteOptions{}, []string{metav1.FinalizerOrphanDependents}},
		"background": {policy(metav1.DeletePropagationBackground), nil},
		"foreground": {policy(metav1.DeletePropagationForeground), []string{metav1.FinalizerDeleteDependents}},
		"orphan":     {policy(metav1.DeletePropagationOrphan), []string{metav1.FinalizerOrphanDependents}},
		"old orphan": {orphan(true), []string{metav1.FinalizerOrphanDependents}},
		"old delete": {orphan(false), []string{metav1.FinalizerDeleteDependents}},
	} {
		t.Run(name, func(t *testing.T) {
			got := collectorFinalizers([]string{"example.com/hold", metav1.FinalizerOrphanDependents}, tc.options)
			if want := append([]string{"example.com/hold"}, tc.want...); !slices.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
}
