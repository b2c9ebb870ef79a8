package podgc

import (
	"cmp"
	"container/heap"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/controllers/podsbynode"
	"monopod.dev/monopod/internal/pods"
)

// ended are the pods that have ended and that nobody deletes yet. The oldest one is found without looking at the others.
type ended struct {
	in     map[types.UID]*finished
	oldest marks
}

// see takes in a pod as it is, and says whether it is one of those that have ended, and is new among them.
func (e *ended) see(pod *corev1.Pod) bool {
	if !pods.Ended(pod) || pod.DeletionTimestamp != nil {
		e.forget(pod.UID)
		return false
	}
	if e.in[pod.UID] != nil {
		return false
	}
	if e.in == nil {
		e.in = map[types.UID]*finished{}
	}
	m := &finished{Pod: podsbynode.Of(pod), created: pod.CreationTimestamp.Time}
	e.in[pod.UID] = m
	heap.Push(&e.oldest, m)
	return true
}

// forget takes in that a pod is none of them any more.
func (e *ended) forget(uid types.UID) {
	if m := e.in[uid]; m != nil {
		heap.Remove(&e.oldest, m.at)
		delete(e.in, uid)
	}
}

// beyond are the oldest of them, as far as they are more than are kept.
func (e *ended) beyond(kept int) (all []podsbynode.Pod) {
	for len(e.oldest) > kept {
		m := heap.Pop(&e.oldest).(*finished)
		delete(e.in, m.UID)
		all = append(all, m.Pod)
	}
	return all
}

// finished is a pod among those that have ended.
type finished struct {
	podsbynode.Pod
	created time.Time
	at      int // in marks
}

// marks is a heap.
type marks []*finished

// Len implements heap.Interface, as do the others.
func (m marks) Len() int { return len(m) }

// Less says which one is older.
func (m marks) Less(i, j int) bool {
	a, b := m[i], m[j]
	return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name)) < 0
}

// Swap swaps two.
func (m marks) Swap(i, j int) {
	m[i], m[j] = m[j], m[i]
	m[i].at, m[j].at = i, j
}

// Push adds the last one.
func (m *marks) Push(x any) {
	last := x.(*finished)
	last.at = len(*m)
	*m = append(*m, last)
}

// Pop takes the last one.
func (m *marks) Pop() any {
	all := *m
	last := all[len(all)-1]
	all[len(all)-1] = nil
	*m = all[:len(all)-1]
	return last
}
