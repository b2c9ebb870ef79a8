package worker

import (
	"fmt"
	"log/slog"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/agent/plan"
)

type someJudge struct {
	verdict *plan.Verdict
	calls   *[]string
	name    string
}

func (j someJudge) Judge(*v1.Pod, func()) *plan.Verdict {
	*j.calls = append(*j.calls, j.name+" judges")
	return j.verdict
}

func (j someJudge) Forget(types.UID) { *j.calls = append(*j.calls, j.name+" forgets") }

// TestJudges: they are asked in their order until one has spoken, and all forget a pod that ends.
func TestJudges(t *testing.T) {
	var calls []string
	said := plan.Terminated("Evicted", "too much", plan.ShortestGrace)
	w := &Worker{log: slog.New(slog.DiscardHandler), cfg: Config{Judges: []Judge{
		someJudge{name: "a", calls: &calls}, someJudge{name: "b", calls: &calls, verdict: said}, someJudge{name: "c", calls: &calls},
	}}}
	if got := w.judgeUse(&plan.Input{Pod: &v1.Pod{}}); got != said {
		t.Errorf("the verdict is %+v", got)
	}
	w.ruling = ruling{verdict: said, recalled: true, kept: true}
	w.judge(&wish{pod: &v1.Pod{}}, &plan.Input{Pod: &v1.Pod{}})
	if got, want := fmt.Sprint(calls), "[a judges b judges a forgets b forgets c forgets]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
