package worker

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/pods/fields"
)

// judges say, in this order, whether a pod is to end for a reason that is not in its containers; nil: not for theirs. A judge of what a node may do to its
// pods is a line here.
var judges = []func(*Worker, *plan.Input) *plan.Verdict{
	(*Worker).judgeShutdown,
	unsupported,
	(*Worker).admission,
	(*Worker).judgeDevices,
}

// judge asks the judges until one has spoken; what was said once holds.
func (w *Worker) judge(wish *wish, in *plan.Input) {
	if w.verdict == nil && !over(in.Prior.Phase) && !wish.gone && wish.pod.DeletionTimestamp == nil {
		for _, judge := range judges {
			if w.verdict = judge(w, in); w.verdict != nil {
				break
			}
		}
	}
	in.Verdict = w.verdict
}

// unsupported fails a pod with fields that the agent does not honour, by name, rather than run something else than was asked for. One that has begun may
// have got them since.
func unsupported(_ *Worker, in *plan.Input) *plan.Verdict {
	if in.Begun() {
		return nil
	}
	names := notHonoured(in.Pod)
	if len(names) == 0 {
		return nil
	}
	return plan.Rejected(plan.ReasonUnsupported, "this node does not support: "+strings.Join(names, ", ")+"; remove these fields")
}

// notHonoured names the fields of a pod's specification that the agent does not honour.
func notHonoured(pod *v1.Pod) (names []string) {
	for _, r := range fields.Refused(fields.Agent, &pod.Spec, field.NewPath("spec")) {
		names = append(names, r.String())
	}
	return names
}

// admission fails a pod that the node does not take.
func (w *Worker) admission(in *plan.Input) *plan.Verdict {
	refusal := w.cfg.Ledger.Take(in.Pod, in.Begun())
	if refusal == nil {
		return nil
	}
	return plan.Rejected(refusal.Reason, plan.SaidRejected+refusal.Message)
}
