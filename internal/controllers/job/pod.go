package job

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/pods"
)

const (
	// none is the index of a pod that has no completion index.
	none = -1
	// indexVariable tells a container its completion index.
	indexVariable = "JOB_COMPLETION_INDEX"
	// longestPrefix is how many letters of a pod's name come before those that are chance.
	longestPrefix = 58
)

func tracked(pod *corev1.Pod) bool {
	return slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer)
}

func active(pod *corev1.Pod) bool { return !pods.Ended(pod) && pod.DeletionTimestamp == nil }

func terminating(pod *corev1.Pod) bool { return !pods.Ended(pod) && pod.DeletionTimestamp != nil }

// forced says whether a pod has no time left to end in: it was deleted by force, before it had a node, or by an agent that has done with it.
func forced(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}

func isReady(pod *corev1.Pod) bool { return pods.IsTrue(&pod.Status, corev1.PodReady) }

// indexOf is a pod's completion index; none: it has none that can be read.
func indexOf(pod *corev1.Pod) int {
	if i, err := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation]); err == nil && i >= 0 {
		return i
	}
	return none
}

// indexFailures is how often the pods of an index have failed before this one, as it was told when it was made: those that count, and those that a policy
// has said do not.
func indexFailures(pod *corev1.Pod) (counted, ignored int32) {
	number := func(annotation string) int32 {
		n, err := strconv.ParseInt(pod.Annotations[annotation], 10, 32)
		if err != nil || n < 0 {
			return 0
		}
		return int32(n)
	}
	return number(batchv1.JobIndexFailureCountAnnotation), number(batchv1.JobIndexIgnoredFailureCountAnnotation)
}

// allFailures is the sum of the two, without a chance to overflow.
func allFailures(pod *corev1.Pod) int64 {
	counted, ignored := indexFailures(pod)
	return int64(counted) + int64(ignored)
}

// Missing is a pod that is to be made.
type Missing struct {
	// Index is the completion index; none: the job's pods have none.
	Index int
	// Instead is the pod of the index that failed and that this one stands in for; nil: there is none, or the job does not count failures by index.
	Instead *corev1.Pod
}

// pod is a new pod of a job.
func (n Missing) pod(j *batchv1.Job) *corev1.Pod {
	pod := owned.FromTemplate(&j.Spec.Template, j, kind)
	if !tracked(pod) {
		pod.Finalizers = append(pod.Finalizers, batchv1.JobTrackingFinalizer)
	}
	if n.Index == none {
		return pod
	}
	for role, container := range pods.Containers(&pod.Spec) {
		if role != pods.Ephemeral {
			addIndexVariable(container)
		}
	}
	index := strconv.Itoa(n.Index)
	more := map[string]string{batchv1.JobCompletionIndexAnnotation: index}
	pod.Labels = merged(pod.Labels, more)
	if j.Spec.BackoffLimitPerIndex != nil {
		counted, ignored := n.failures(j)
		more[batchv1.JobIndexFailureCountAnnotation] = strconv.Itoa(int(counted))
		if ignored > 0 {
			more[batchv1.JobIndexIgnoredFailureCountAnnotation] = strconv.Itoa(int(ignored))
		}
	}
	pod.Annotations = merged(pod.Annotations, more)
	pod.Spec.Hostname = fmt.Sprintf("%s-%s", j.Name, index)
	end := "-" + index + "-"
	pod.GenerateName = j.Name[:min(len(j.Name), longestPrefix-len(end))] + end
	return pod
}

// failures are those that the new pod is told of.
func (n Missing) failures(j *batchv1.Job) (counted, ignored int32) {
	if n.Instead == nil {
		return 0, 0
	}
	counted, ignored = indexFailures(n.Instead)
	if judge(j, n.Instead).counts {
		return counted + min(1, math.MaxInt32-counted), ignored
	}
	return counted, ignored + min(1, math.MaxInt32-ignored)
}

func merged(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, b)
	return all
}

func addIndexVariable(c *corev1.Container) {
	if slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == indexVariable }) {
		return
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: indexVariable, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: fmt.Sprintf("metadata.labels['%s']", batchv1.JobCompletionIndexAnnotation)},
	}})
}

// finished is when a pod ended: when its last container did, else when it was not ready any more, else when it was asked to end.
func finished(pod *corev1.Pod) time.Time {
	if last := lastExit(pod); !last.IsZero() {
		return last
	}
	if c := pods.Condition(&pod.Status, corev1.PodReady); c != nil && c.Status == corev1.ConditionFalse && !c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	if pod.DeletionTimestamp != nil {
		return pod.DeletionTimestamp.Add(-pods.Seconds(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)))
	}
	return pod.CreationTimestamp.Time
}

// lastExit is when the last of a pod's containers and sidecars ended; zero: not all have.
func lastExit(pod *corev1.Pod) (last time.Time) {
	sidecars := map[string]bool{}
	for role, container := range pods.Containers(&pod.Spec) {
		sidecars[container.Name] = role == pods.Sidecar
	}
	statuses := slices.Clone(pod.Status.ContainerStatuses)
	for _, s := range pod.Status.InitContainerStatuses {
		if sidecars[s.Name] {
			statuses = append(statuses, s)
		}
	}
	for _, s := range statuses {
		if s.State.Terminated == nil || s.State.Terminated.FinishedAt.IsZero() {
			return time.Time{}
		}
		if at := s.State.Terminated.FinishedAt.Time; at.After(last) {
			last = at
		}
	}
	return last
}

// compare sorts pods by who goes first when there are too many: without a node before with one, Pending before Unknown before Running, not ready before
// ready, ready for a shorter time, more restarts, younger.
func compare(a, b *corev1.Pod) int {
	phase := func(p *corev1.Pod) int {
		return slices.Index([]corev1.PodPhase{corev1.PodPending, corev1.PodUnknown, corev1.PodRunning}, p.Status.Phase)
	}
	yes := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	since := func(p *corev1.Pod) time.Time {
		if c := pods.Condition(&p.Status, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
		return time.Time{}
	}
	restarts := func(p *corev1.Pod) (n int32) {
		for _, s := range p.Status.ContainerStatuses {
			n = max(n, s.RestartCount)
		}
		return n
	}
	return cmp.Or(
		cmp.Compare(yes(a.Spec.NodeName != ""), yes(b.Spec.NodeName != "")),
		cmp.Compare(phase(a), phase(b)),
		cmp.Compare(yes(isReady(a)), yes(isReady(b))),
		since(b).Compare(since(a)),
		-cmp.Compare(restarts(a), restarts(b)),
		b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
		cmp.Compare(a.UID, b.UID),
	)
}
