package worker

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/pods/fields"
)

// judges say, in this order, whether a pod is to end for a reason that is not in its containers; nil: not for theirs. A judge of what a node may do to its
// pods is a line here.
var judges = []func(*Worker, *plan.Input) *plan.Verdict{
	(*Worker).judgeShutdown,
	unnameable,
	unsupported,
	(*Worker).admission,
	(*Worker).judgeDevices,
	(*Worker).judgeDisk,
}

// judge asks the judges until one has spoken; what was said once holds, also for an agent that comes after this one: it is kept before it is acted on.
func (w *Worker) judge(wish *wish, in *plan.Input) {
	w.recall()
	if w.verdict == nil && !over(in.Prior.Phase) && !wish.gone && wish.pod.DeletionTimestamp == nil {
		for _, judge := range judges {
			if w.verdict = judge(w, in); w.verdict != nil {
				break
			}
		}
	} else if w.cfg.Disk != nil {
		w.cfg.Disk.Forget(wish.pod.UID)
	}
	w.keep(in)
	in.Verdict = w.verdict
}

// recall reads, at the first time, what an agent before this one has decided.
func (w *Worker) recall() {
	if w.recalled {
		return
	}
	w.recalled = true
	raw, err := w.cfg.Volumes.Verdict(w.uid)
	if err == nil && raw != nil && w.verdict == nil {
		w.verdict, err = plan.DecodeVerdict(raw)
		w.kept = err == nil
	}
	if err != nil {
		w.log.Warn("what was decided about the pod's end can't be read; it is judged anew", "error", err)
	}
}

// keep keeps what was decided, while something of the pod is to be ended by it.
func (w *Worker) keep(in *plan.Input) {
	if w.verdict == nil || w.kept || len(in.Observed.Sandboxes)+len(in.Observed.Containers) == 0 {
		return
	}
	v := *w.verdict
	if v.Since.IsZero() {
		v.Since = in.Now
	}
	w.verdict = &v
	raw, err := v.Encode()
	if err == nil {
		err = w.cfg.Volumes.KeepVerdict(w.uid, raw)
	}
	if err == nil {
		w.kept = true
		return
	}
	if !w.keepFailed {
		w.keepFailed = true
		w.log.Warn("what was decided about the pod's end can't be kept; it is carried out, and an agent that is started before that is done judges anew", "error", err)
	}
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

// unnameable fails a pod whose log directory no file system can name, which would be tried for good: its names are not to be changed.
func unnameable(_ *Worker, in *plan.Input) *plan.Verdict {
	dir := podspec.LogDir(podspec.Ref{UID: string(in.Pod.UID), Namespace: in.Pod.Namespace, Name: in.Pod.Name})
	if in.Begun() || len(dir) <= podspec.MaxName {
		return nil
	}
	return plan.Rejected(plan.ReasonNameTooLong, fmt.Sprintf("the directory of the pod's logs, NAMESPACE_NAME_UID, would have a name of %d bytes, and no file has one of more than %d: "+
		"give the pod a name that is shorter by %d", len(dir), podspec.MaxName, len(dir)-podspec.MaxName))
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

// Disk says of pods that they take more of the node's disk than they may.
type Disk interface {
	// Judge says how a pod ends by that; nil: it goes on. poke is called when the answer has changed, until Forget.
	Judge(pod *v1.Pod, poke func()) *plan.Verdict
	Forget(uid types.UID)
}

// judgeDisk ends a pod that takes too much of the disk.
func (w *Worker) judgeDisk(in *plan.Input) *plan.Verdict {
	if w.cfg.Disk == nil {
		return nil
	}
	return w.cfg.Disk.Judge(in.Pod, w.poke)
}
