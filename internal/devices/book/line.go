package book

import (
	"cmp"
	"slices"
	"time"
)

// line are the pods that wait for devices which others have. First come, first served: while a pod waits, none that came after it gets a
// device of a resource that it asks for. Who came first is told by the pods' creation, so that a restart changes nothing; that is known to
// the second, and of those of one second by who asked first. A pod that asks for more than the node has does not wait here: it would keep the
// others waiting for ever.
type line struct {
	waiting []waiter
	entered int // how many ever were
}

type waiter struct {
	uid, namespace, name string
	created              time.Time
	resources            map[string]bool
	turn                 int // 0: it is not in the line
}

func (w waiter) compare(o waiter) int {
	return cmp.Or(w.created.Compare(o.created), cmp.Compare(w.turn, o.turn))
}

// ahead returns the first one that the pod has to wait for.
func (l *line) ahead(w waiter) (waiter, bool) {
	w.turn = l.turn(w.uid)
	for _, o := range l.waiting {
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
func (l *line) turn(uid string) int {
	if i := slices.IndexFunc(l.waiting, func(w waiter) bool { return w.uid == uid }); i >= 0 {
		return l.waiting[i].turn
	}
	return l.entered + 1
}

// enter puts a pod into its place, which it keeps if it has one.
func (l *line) enter(w waiter) {
	w.turn = l.turn(w.uid)
	l.entered = max(l.entered, w.turn)
	l.leave(w.uid)
	at, _ := slices.BinarySearchFunc(l.waiting, w, waiter.compare)
	l.waiting = slices.Insert(l.waiting, at, w)
}

// leave says whether the pod was waiting.
func (l *line) leave(uid string) bool {
	before := len(l.waiting)
	l.waiting = slices.DeleteFunc(l.waiting, func(w waiter) bool { return w.uid == uid })
	return len(l.waiting) < before
}
