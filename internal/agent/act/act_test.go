package act

import (
	"testing"

	"monopod.dev/monopod/internal/agent/plan"
)

// TestEachVerbIsCarriedOut: what the plan can decide can be done, and nothing else is here.
func TestEachVerbIsCarriedOut(t *testing.T) {
	verbs := New(&Tell{}, Parts{}).verbs
	for _, v := range plan.Verbs() {
		if verbs[v] == nil {
			t.Errorf("nothing carries out %s", v)
		}
	}
	if len(verbs) != len(plan.Verbs()) {
		t.Errorf("%d verbs are carried out, the plan has %d", len(verbs), len(plan.Verbs()))
	}
}
