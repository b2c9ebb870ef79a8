package pods

import v1 "k8s.io/api/core/v1"

// Critical says that the cluster, or the node, needs the pod: its priority is one of the system's. That a pod is the node's own (static), no annotation of it
// says, because anybody writes them: here all pods are an API server's.
func Critical(pod *v1.Pod) bool {
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= criticalPriority
}

// criticalPriority is the least of the system's priority classes.
const criticalPriority = 2_000_000_000

// NodeCritical says that the pod is one of those that the node needs most.
func NodeCritical(pod *v1.Pod) bool {
	return Critical(pod) && pod.Spec.PriorityClassName == "system-node-critical"
}
