package binder

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// assumed remembers the pods that were bound but which the watch does not show as bound yet. Without it the next pod
// would be given the same resources again.
type assumed struct {
	mu   sync.Mutex
	pods map[types.UID]*corev1.Pod // with spec.nodeName set
}

// put remembers that pod is on its way to node.
func (a *assumed) put(pod *corev1.Pod, node string) {
	pod = pod.DeepCopy()
	pod.Spec.NodeName = node
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pods == nil {
		a.pods = map[types.UID]*corev1.Pod{}
	}
	a.pods[pod.UID] = pod
}

// forget drops a pod: the watch shows it where it is, or it is gone, or it could not be bound.
func (a *assumed) forget(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pods, uid)
}

func (a *assumed) has(uid types.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pods[uid] != nil
}

// with returns pods and those assumed on node that are not among them.
func (a *assumed) with(pods []*corev1.Pod, node string) []*corev1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.pods) == 0 {
		return pods
	}
	known := make(map[types.UID]bool, len(pods))
	for _, p := range pods {
		known[p.UID] = true
	}
	for uid, p := range a.pods {
		if p.Spec.NodeName == node && !known[uid] {
			pods = append(pods, p)
		}
	}
	return pods
}
