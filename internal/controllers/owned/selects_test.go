package owned

import (
	"math/rand/v2"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// TestSelectorsAreReadAsEverywhere holds Selects against apimachinery's reading.
func TestSelectorsAreReadAsEverywhere(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	few := func() map[string]string {
		m := map[string]string{}
		for range r.IntN(3) {
			m[pick("a", "b", "c")] = pick("", "1", "2")
		}
		return m
	}
	for range 5000 {
		selector := &metav1.LabelSelector{MatchLabels: few()}
		for range r.IntN(3) {
			e := metav1.LabelSelectorRequirement{Key: pick("a", "b", "c"), Operator: metav1.LabelSelectorOperator(pick("In", "NotIn", "Exists", "DoesNotExist"))}
			for e.Operator == "In" && len(e.Values) == 0 || e.Operator == "NotIn" && len(e.Values) == 0 || len(e.Values) > 0 && r.IntN(2) == 0 {
				e.Values = append(e.Values, pick("", "1", "2", "3"))
			}
			selector.MatchExpressions = append(selector.MatchExpressions, e)
		}
		theirs, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		if has := few(); Selects(selector, has) != theirs.Matches(labels.Set(has)) {
			t.Fatalf("%s selects %v: %v", theirs, has, Selects(selector, has))
		}
	}
}
