package binder

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/pods"
	"monopod.dev/monopod/internal/pods/allocated"
)

// line knows the pods that wait for a node, and who of them came first: who was created first. That is known to the second, and of those of one second the
// watch tells who came first.
type line struct {
	mu      sync.Mutex
	in      map[types.UID]*waiter
	entered int // how many ever were
	// kept are those that could have a node, but for another one that came before them; minding those that may get one by where other pods are.
	kept, minding map[types.UID]*waiter
	// claiming are those that have a claim.
	claiming map[types.NamespacedName]map[types.UID]*waiter
}

// waiter is a pod in the line.
type waiter struct {
	pod  *corev1.Pod
	turn int
	// wanted is what it requests, asks the devices among that.
	wanted corev1.ResourceList
	asks   map[corev1.ResourceName]bool
}

// enter gives a pod its turn, unless it has one.
func (l *line) enter(pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if was := l.in[pod.UID]; was != nil {
		now := *was // somebody may be looking at the one before
		now.pod = pod
		l.put(&now)
		return
	}
	if l.in == nil {
		l.in, l.kept, l.minding = map[types.UID]*waiter{}, map[types.UID]*waiter{}, map[types.UID]*waiter{}
		l.claiming = map[types.NamespacedName]map[types.UID]*waiter{}
	}
	l.entered++
	l.put(&waiter{pod: pod, turn: l.entered, wanted: allocated.Of(pod).Requests(), asks: devices(pod)})
}

func (l *line) put(w *waiter) {
	l.in[w.pod.UID] = w
	if l.kept[w.pod.UID] != nil {
		l.kept[w.pod.UID] = w
	}
	if mindsPods(w.pod) {
		l.minding[w.pod.UID] = w
	}
	for _, claim := range pods.Claims(w.pod) {
		if l.claiming[claim.NamespacedName] == nil {
			l.claiming[claim.NamespacedName] = map[types.UID]*waiter{}
		}
		l.claiming[claim.NamespacedName][w.pod.UID] = w
	}
}

func (l *line) leave(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.in[uid]; w != nil {
		for _, claim := range pods.Claims(w.pod) {
			if delete(l.claiming[claim.NamespacedName], uid); len(l.claiming[claim.NamespacedName]) == 0 {
				delete(l.claiming, claim.NamespacedName)
			}
		}
	}
	delete(l.in, uid)
	delete(l.kept, uid)
	delete(l.minding, uid)
}

// keep notes whether it is only another one in line for which a pod waits.
func (l *line) keep(uid types.UID, kept bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.in[uid]
	if w == nil || !kept {
		delete(l.kept, uid)
		return
	}
	l.kept[uid] = w
}

// all are those in line, keptOnes and mindingOnes some of them, in no order.
func (l *line) all() []*waiter      { return l.some(func() map[types.UID]*waiter { return l.in }) }
func (l *line) keptOnes() []*waiter { return l.some(func() map[types.UID]*waiter { return l.kept }) }
func (l *line) mindingOnes() []*waiter {
	return l.some(func() map[types.UID]*waiter { return l.minding })
}

// claimingOf are those in line that have a claim, claimingOnes those that have any, in no order.
func (l *line) claimingOf(claim types.NamespacedName) []*waiter {
	return l.some(func() map[types.UID]*waiter { return l.claiming[claim] })
}

func (l *line) claimingOnes() []*waiter {
	return l.some(func() map[types.UID]*waiter {
		all := map[types.UID]*waiter{}
		for _, some := range l.claiming {
			maps.Copy(all, some)
		}
		return all
	})
}

func (l *line) some(of func() map[types.UID]*waiter) []*waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := of()
	some := make([]*waiter, 0, len(found))
	for _, w := range found {
		some = append(some, w)
	}
	return some
}

// before are those in line that came before a pod, which need not be in it, in no order.
func (l *line) before(pod *corev1.Pod) []*waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := &waiter{pod: pod}
	if in := l.in[pod.UID]; in != nil {
		of.turn = in.turn
	}
	var older []*waiter
	for _, w := range l.in {
		if w.compare(of) < 0 {
			older = append(older, w)
		}
	}
	return older
}

// compare is negative if w came before o.
func (w *waiter) compare(o *waiter) int {
	return cmp.Or(w.pod.CreationTimestamp.Compare(o.pod.CreationTimestamp.Time), cmp.Compare(w.turn, o.turn))
}

// inOrder are the pods of waiters, the oldest first.
func inOrder(some []*waiter) []*corev1.Pod {
	slices.SortFunc(some, (*waiter).compare)
	inOrder := make([]*corev1.Pod, len(some))
	for i, w := range some {
		inOrder[i] = w.pod
	}
	return inOrder
}
