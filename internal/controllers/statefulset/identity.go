package statefulset

import (
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/controllers/owned"
)

// kind is that of stateful sets.
var kind = appsv1.SchemeGroupVersion.WithKind("StatefulSet")

// ordinal is the number in a pod's name, if that is the name of one of a set's pods.
func ordinal(set *appsv1.StatefulSet, pod *corev1.Pod) (int, bool) {
	i := strings.LastIndexByte(pod.Name, '-')
	if i < 0 || pod.Name[:i] != set.Name {
		return 0, false
	}
	number, err := strconv.ParseUint(pod.Name[i+1:], 10, 32) // the sum of two of 31 bits: where a set begins, and how many it wants
	if err != nil || podName(set, int(number)) != pod.Name { // such as "a-01"
		return 0, false
	}
	return int(number), true
}

func podName(set *appsv1.StatefulSet, ordinal int) string {
	return set.Name + "-" + strconv.Itoa(ordinal)
}

// first is the lowest ordinal of a set.
func first(set *appsv1.StatefulSet) int {
	if set.Spec.Ordinals != nil {
		return int(set.Spec.Ordinals.Start)
	}
	return 0
}

// newPod is the pod of a set with an ordinal, by the template of a revision.
func newPod(set *appsv1.StatefulSet, template *corev1.PodTemplateSpec, revision string, ordinal int) *corev1.Pod {
	pod := owned.FromTemplate(template, set, kind)
	pod.Name = podName(set, ordinal)
	identify(pod, ordinal)
	mountClaims(set, pod, ordinal)
	pod.Labels[appsv1.ControllerRevisionHashLabelKey] = revision
	pod.Spec.Hostname, pod.Spec.Subdomain = pod.Name, set.Spec.ServiceName
	return pod
}

// identified says whether a pod has the label by which a service can select it alone.
func identified(pod *corev1.Pod) bool { return pod.Labels[appsv1.StatefulSetPodNameLabel] == pod.Name }

// identify gives a pod the labels of its name.
func identify(pod *corev1.Pod, ordinal int) {
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[appsv1.StatefulSetPodNameLabel] = pod.Name
	pod.Labels[appsv1.PodIndexLabel] = strconv.Itoa(ordinal)
}

// revision is the name of the revision that a pod was made by.
func revision(pod *corev1.Pod) string { return pod.Labels[appsv1.ControllerRevisionHashLabelKey] }
