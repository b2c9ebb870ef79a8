package daemonset

import (
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// For how long a pod that has failed is let be, the first time that another one fails, and at most. It doubles each time, and begins anew when none has failed
// for twice the longest time.
const (
	firstPatience   = time.Second
	longestPatience = 15 * time.Minute
)

// patience is how often pods of sets have failed on nodes lately: an agent that refuses a pod would else be given the next one at once, time and again. A set
// that is changed is another one.
type patience struct {
	mu sync.Mutex
	of map[cache.ObjectName]*failures
}

type failures struct {
	uid        types.UID
	generation int64
	on         map[string]failed
}

// failed is when a pod that had failed was deleted last, and for how long the next one is let be.
type failed struct {
	at    time.Time
	pause time.Duration
}

// left is for how long a pod of a set that has failed on a node is still let be.
func (p *patience) left(set *appsv1.DaemonSet, node string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.get(set).on[node]
	return max(0, last.at.Add(last.pause).Sub(now))
}

// next notes that a pod that has failed on a node is deleted.
func (p *patience) next(set *appsv1.DaemonSet, node string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.get(set)
	last, ok := of.on[node]
	if !ok || now.Sub(last.at) > 2*longestPatience {
		of.on[node] = failed{now, firstPatience}
		return
	}
	of.on[node] = failed{now, min(2*last.pause, longestPatience)}
}

// keep forgets the nodes of a set that are not there any more.
func (p *patience) keep(set *appsv1.DaemonSet, there func(node string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for node := range p.get(set).on {
		if !there(node) {
			delete(p.of[cache.MetaObjectToName(set)].on, node)
		}
	}
}

// forget forgets a set that is gone.
func (p *patience) forget(set cache.ObjectName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, set)
}

func (p *patience) get(set *appsv1.DaemonSet) *failures {
	name := cache.MetaObjectToName(set)
	of := p.of[name]
	if of == nil || of.uid != set.UID || of.generation != set.Generation {
		of = &failures{uid: set.UID, generation: set.Generation, on: map[string]failed{}}
		if p.of == nil {
			p.of = map[cache.ObjectName]*failures{}
		}
		p.of[name] = of
	}
	return of
}
