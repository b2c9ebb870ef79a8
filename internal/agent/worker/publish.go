package worker

import (
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/agent/podlog"
)

// publish tells the pod's status, and the events that follow from a change of it.
func (w *Worker) publish(pod *v1.Pod, in *plan.Input) {
	st := plan.Status(*in)
	if w.prior != nil && w.published == pod && equality.Semantic.DeepEqual(*w.prior, st) {
		return
	}
	w.published = pod
	w.tellBackOffs(pod, w.prior, &st)
	if st.Phase == v1.PodFailed && in.Prior.Phase != v1.PodFailed && st.Reason != "" {
		kind, reason, message := plan.EndEvent(&st)
		w.cfg.Actions.Event(pod, "", kind, reason, message)
	}
	passing := plan.Passing(in, w.prior, &st)
	w.prior = &st
	w.cfg.Status.Set(pod, st, passing)
}

// tellBackOffs makes an event of each container that has begun to wait.
func (w *Worker) tellBackOffs(pod *v1.Pod, old, now *v1.PodStatus) {
	if old == nil {
		return
	}
	was := map[string]string{}
	for _, c := range slices.Concat(old.InitContainerStatuses, old.ContainerStatuses) {
		if c.State.Waiting != nil {
			was[c.Name] = c.State.Waiting.Reason
		}
	}
	for _, c := range slices.Concat(now.InitContainerStatuses, now.ContainerStatuses) {
		waits := c.State.Waiting
		if waits == nil || waits.Reason == was[c.Name] {
			continue
		}
		switch waits.Reason {
		case plan.ReasonCrashLoopBackOff:
			w.cfg.Actions.Event(pod, c.Name, v1.EventTypeWarning, "BackOff", fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)",
				c.Name, pod.Name, pod.Namespace, pod.UID))
		case plan.ReasonImagePullBackOff:
			w.cfg.Actions.Event(pod, c.Name, v1.EventTypeNormal, "BackOff", plan.BackOffPulling(w.retries.failures[plan.Key{Verb: plan.StartContainer, ContainerName: c.Name}].Image))
			w.cfg.Actions.Event(pod, c.Name, v1.EventTypeWarning, "Failed", "Error: "+plan.ReasonImagePullBackOff)
		}
	}
}

// Limits of a termination message: of its file, and of what is taken from the end of the log instead.
const (
	maxMessage      = 4096
	maxMessageLog   = 2048
	maxMessageLines = 80
)

// terminationMessage reads what a container has left as its last words.
func (w *Worker) terminationMessage(end cri.End) string {
	path := w.cfg.Files.MessagePath(w.uid, end.Facts.Name, uint32(end.Facts.RestartCount))
	if m := readStart(path, maxMessage); m != "" {
		return m
	}
	if end.Facts.MessagePolicy != v1.TerminationMessageFallbackToLogsOnError || end.ExitCode == 0 || end.LogPath == "" {
		return ""
	}
	// A log that is not there has no words.
	m, _ := podlog.Tail(end.LogPath, maxMessageLines, maxMessageLog)
	return m
}

// readStart reads at most limit bytes; empty where there is no regular file: another kind would be waited for.
func readStart(path string, limit int64) string {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return ""
	}
	data, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return ""
	}
	return string(data)
}
