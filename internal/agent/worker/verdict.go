package worker

import (
	"fmt"
	"log/slog"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/pods/fields"
)

// judge says whether a pod is to end for a reason that is not in its containers; nil: not for this one.
type judge func(in *plan.Input) *plan.Verdict

// judges are asked in this order. A judge of what a pod is, is a line here; one of what it takes of its node is one of Config.Judges.
func (w *Worker) judges() []judge {
	return []judge{w.judgeShutdown, unnameable, unsupported, w.admission, w.granted.judge, w.judgeUse}
}

// ruling is how the pod is to end, and who knows it. It is the loop's own.
type ruling struct {
	// verdict holds once it was said; nil: the pod may go on.
	verdict *plan.Verdict
	// recalled: it was looked what an agent before this one has decided. kept: the next one will know the verdict; keepFailed: it was told that it may not.
	recalled, kept, keepFailed bool
}

// judge asks the judges until one has spoken; what was said once holds, also for an agent that comes after this one: it is kept before it is acted on.
func (w *Worker) judge(wish *wish, in *plan.Input) {
	w.ruling.recall(w.cfg.Files, w.uid, w.log)
	if w.ruling.verdict == nil && !over(in.Prior.Phase) && !wish.gone && wish.pod.DeletionTimestamp == nil {
		for _, judge := range w.judges() {
			if w.ruling.verdict = judge(in); w.ruling.verdict != nil {
				break
			}
		}
	} else {
		for _, j := range w.cfg.Judges {
			j.Forget(wish.pod.UID)
		}
	}
	w.ruling.keep(w.cfg.Files, in, w.log)
	in.Verdict = w.ruling.verdict
}

// recall reads, at the first time, what an agent before this one has decided.
func (r *ruling) recall(files Files, uid types.UID, log *slog.Logger) {
	if r.recalled {
		return
	}
	r.recalled = true
	raw, err := files.Verdict(uid)
	if err == nil && raw != nil && r.verdict == nil {
		r.verdict, err = plan.DecodeVerdict(raw)
		r.kept = err == nil
	}
	if err != nil {
		log.Warn("what was decided about the pod's end can't be read; it is judged anew", "error", err)
	}
}

// keep keeps what was decided, while something of the pod is to be ended by it.
func (r *ruling) keep(files Files, in *plan.Input, log *slog.Logger) {
	if r.verdict == nil || r.kept || len(in.Observed.Sandboxes)+len(in.Observed.Containers) == 0 {
		return
	}
	v := *r.verdict
	if v.Since.IsZero() {
		v.Since = in.Now
	}
	r.verdict = &v
	raw, err := v.Encode()
	if err == nil {
		err = files.KeepVerdict(in.Pod.UID, raw)
	}
	if err == nil {
		r.kept = true
		return
	}
	if !r.keepFailed {
		r.keepFailed = true
		log.Warn("what was decided about the pod's end can't be kept; it is carried out, and an agent that is started before that is done judges anew", "error", err)
	}
}

// unsupported fails a pod with fields that the agent does not honour, by name, rather than run something else than was asked for. One that has begun may
// have got them since.
func unsupported(in *plan.Input) *plan.Verdict {
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
func unnameable(in *plan.Input) *plan.Verdict {
	dir := podspec.LogDir(podspec.Ref{UID: in.Pod.UID, Namespace: in.Pod.Namespace, Name: in.Pod.Name})
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

// judgeUse ends a pod that takes too much of its node.
func (w *Worker) judgeUse(in *plan.Input) *plan.Verdict {
	for _, j := range w.cfg.Judges {
		if v := j.Judge(in.Pod, w.poke); v != nil {
			return v
		}
	}
	return nil
}

// judgeShutdown ends a pod with the node. One that has ended by itself keeps its end.
func (w *Worker) judgeShutdown(in *plan.Input) *plan.Verdict {
	if w.cfg.Shutdown == nil {
		return nil
	}
	v := w.cfg.Shutdown.Judge(in.Pod, in.Begun())
	if v != nil && over(plan.Status(*in).Phase) {
		return nil
	}
	return v
}
