package binder

import (
	"cmp"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// line knows who came first of the pods that have no node: who was created first. That is known to the second, and of those of one second the watch
// tells who came first.
type line struct {
	mu      sync.Mutex
	turns   map[types.UID]int
	entered int // how many ever were
	// kept are those that could have a node, but for another one that came before them.
	kept map[types.UID]bool
}

// enter gives a pod its turn, unless it has one.
func (l *line) enter(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, in := l.turns[uid]; in {
		return
	}
	if l.turns == nil {
		l.turns = map[types.UID]int{}
	}
	l.entered++
	l.turns[uid] = l.entered
}

func (l *line) leave(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.turns, uid)
	delete(l.kept, uid)
}

// keep notes whether it is only another one in line for which a pod waits.
func (l *line) keep(uid types.UID, kept bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, in := l.turns[uid]; !in || !kept {
		delete(l.kept, uid)
		return
	}
	if l.kept == nil {
		l.kept = map[types.UID]bool{}
	}
	l.kept[uid] = true
}

func (l *line) keeps(pod *corev1.Pod) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept[pod.UID]
}

// compare is negative if x came before y.
func (l *line) compare(x, y *corev1.Pod) int {
	if c := x.CreationTimestamp.Compare(y.CreationTimestamp.Time); c != 0 {
		return c
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Compare(l.turns[x.UID], l.turns[y.UID])
}
