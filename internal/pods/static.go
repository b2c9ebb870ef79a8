package pods

import v1 "k8s.io/api/core/v1"

// Where a pod that is not an API server's comes from is in its annotation; those of an API server have none, or say so.
const (
	annotationSource = "kubernetes.io/config.source"
	sourceAPI        = "api"
)

// Static says that a pod is the node's own, from its files or from a URL, and not an API server's.
func Static(pod *v1.Pod) bool {
	source, ok := pod.Annotations[annotationSource]
	return ok && source != sourceAPI
}

// Critical says that the cluster, or the node, needs the pod: its priority is one of the system's, or it is static.
func Critical(pod *v1.Pod) bool {
	return Static(pod) || pod.Spec.Priority != nil && *pod.Spec.Priority >= criticalPriority
}

// criticalPriority is the least of the system's priority classes.
const criticalPriority = 2_000_000_000

// NodeCritical says that the pod is one of those that the node needs most.
func NodeCritical(pod *v1.Pod) bool {
	return Critical(pod) && pod.Spec.PriorityClassName == "system-node-critical"
}
