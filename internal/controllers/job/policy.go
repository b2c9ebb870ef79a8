package job

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// verdict is what a failed pod means for its job.
type verdict struct {
	// failsJob says why the job fails at once; empty: it does not.
	failsJob string
	// failsIndex: no pod stands in for it. counts: it is a failure for backoffLimit and backoffLimitPerIndex.
	failsIndex, counts bool
}

// judge applies the first rule of a job's podFailurePolicy that matches a failed pod. A failure that no rule is about counts.
func judge(j *batchv1.Job, pod *corev1.Pod) verdict {
	counts := verdict{counts: true}
	if j.Spec.PodFailurePolicy == nil {
		return counts
	}
	for i, rule := range j.Spec.PodFailurePolicy.Rules {
		why, ok := match(rule, pod)
		if !ok {
			continue
		}
		switch rule.Action {
		case batchv1.PodFailurePolicyActionIgnore:
			return verdict{}
		case batchv1.PodFailurePolicyActionFailIndex:
			return verdict{failsIndex: true, counts: true}
		case batchv1.PodFailurePolicyActionFailJob:
			return verdict{failsJob: fmt.Sprintf("%s matching %v rule at index %d", why, rule.Action, i), counts: true}
		case batchv1.PodFailurePolicyActionCount:
			return counts
		}
	}
	return counts
}

// match says whether a rule is about a pod, and about what of it.
func match(rule batchv1.PodFailurePolicyRule, pod *corev1.Pod) (why string, ok bool) {
	if codes := rule.OnExitCodes; codes != nil {
		// The containers come before the init containers.
		for _, s := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
			if s.State.Terminated == nil || s.State.Terminated.ExitCode == 0 || codes.ContainerName != nil && *codes.ContainerName != s.Name {
				continue
			}
			code := s.State.Terminated.ExitCode
			if slices.Contains(codes.Values, code) == (codes.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn) {
				return fmt.Sprintf("Container %s for pod %s/%s failed with exit code %v", s.Name, pod.Namespace, pod.Name, code), true
			}
		}
		return "", false
	}
	for _, c := range pod.Status.Conditions {
		for _, wanted := range rule.OnPodConditions {
			if c.Type == wanted.Type && c.Status == wanted.Status {
				return fmt.Sprintf("Pod %s/%s has condition %v", pod.Namespace, pod.Name, c.Type), true
			}
		}
	}
	return "", false
}

// enough says whether a job has succeeded by its successPolicy, and by which rule.
func enough(policy *batchv1.SuccessPolicy, completed indexes, completions int) (why string, ok bool) {
	if policy == nil || len(completed) == 0 {
		return "", false
	}
	for i, rule := range policy.Rules {
		met := rule.SucceededIndexes == nil && rule.SucceededCount != nil && completed.count() >= int(*rule.SucceededCount)
		if rule.SucceededIndexes != nil {
			asked := parseIndexes(*rule.SucceededIndexes, completions)
			has := asked.common(completed)
			met = len(asked) > 0 && (has == asked.count() || rule.SucceededCount != nil && has >= int(*rule.SucceededCount))
		}
		if met {
			return fmt.Sprintf("Matched rules at index %d", i), true
		}
	}
	return "", false
}

// replacesFailedOnly: a pod that is about to end keeps its place until it has ended.
func replacesFailedOnly(j *batchv1.Job) bool {
	return ptr.Deref(j.Spec.PodReplacementPolicy, "") == batchv1.Failed || j.Spec.PodFailurePolicy != nil
}

// failed says whether a pod is a failure. One that is about to end is one, unless it keeps its place. Of one that is deleted without any grace nobody has to say
// how it ended before it goes: it is a failure either way, else the job would wait for ever for its last phase, and the pod for the job to take its finalizer.
func failed(j *batchv1.Job, pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || terminating(pod) && (!replacesFailedOnly(j) || forced(pod))
}
