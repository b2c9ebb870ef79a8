package devices

import (
	"cmp"
	"slices"
	"time"
)

// queue are the pods that wait for devices which others have. First come, first served: while a pod waits, none that came after it gets a
// device of a resource that it asks for. Who came first is told by the pods' creation, so that a restart changes nothing; that is known to
// the second, and of those of one second by who asked first. A pod that asks for more than the node has does not wait here: it would keep the
// others waiting for ever.
type queue struct {
	waiting []waiter
	entered int // how many ever were
}

type waiter struct {
	uid, namespace, name string
	created              time.Time
	resources            map[string]bool
	turn                 int // 0: it is not in line
}

func (w waiter) compare(o waiter) int {
	return cmp.Or(w.created.Compare(o.created), cmp.Compare(w.turn, o.turn))
}

// ahead returns the first one that the pod has to wait for.
func (q *queue) ahead(w waiter) (waiter, bool) {
	w.turn = q.turn(w.uid)
	for _, o := range q.waiting {
		if o.compare(w) >= 0 {
			break
		}
		for r := range w.resources {
			if o.resources[r] {
				return o, true
			}
		}
	}
	return waiter{}, false
}

// turn is that of a pod in line, or the next one.
func (q *queue) turn(uid string) int {
	if i := slices.IndexFunc(q.waiting, func(w waiter) bool { return w.uid == uid }); i >= 0 {
		return q.waiting[i].turn
	}
	return q.entered + 1
}

// enter puts a pod into its place, which it keeps if it has one.
func (q *queue) enter(w waiter) {
	w.turn = q.turn(w.uid)
	q.entered = max(q.entered, w.turn)
	q.leave(w.uid)
	at, _ := slices.BinarySearchFunc(q.waiting, w, waiter.compare)
	q.waiting = slices.Insert(q.waiting, at, w)
}

// leave says whether the pod was waiting.
func (q *queue) leave(uid string) bool {
	before := len(q.waiting)
	q.waiting = slices.DeleteFunc(q.waiting, func(w waiter) bool { return w.uid == uid })
	return len(q.waiting) < before
}

func (q *queue) uids() (uids []string) {
	for _, w := range q.waiting {
		uids = append(uids, w.uid)
	}
	return uids
}
