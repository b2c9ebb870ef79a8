package disruption

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// asked are the budgets that depend on what an owner of pods wants, by the owner's UID, whether it was found or not: a change of one owner of a thousand is work for
// the budgets of its pods, and not for all of the namespace. Its zero value is ready, and its methods are safe for concurrent use.
type asked struct {
	mu sync.Mutex
	by map[types.UID]map[cache.ObjectName]struct{}
	of map[cache.ObjectName]map[types.UID]struct{}
}

// note notes that a budget depends on an owner. It is called before the owner is read: whatever changes after that is told.
func (a *asked) note(budget cache.ObjectName, owner types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by == nil {
		a.by, a.of = map[types.UID]map[cache.ObjectName]struct{}{}, map[cache.ObjectName]map[types.UID]struct{}{}
	}
	if a.by[owner] == nil {
		a.by[owner] = map[cache.ObjectName]struct{}{}
	}
	if a.of[budget] == nil {
		a.of[budget] = map[types.UID]struct{}{}
	}
	a.by[owner][budget], a.of[budget][owner] = struct{}{}, struct{}{}
}

// settle forgets of a budget all owners but those that it has just been decided by; nil: all.
func (a *asked) settle(budget cache.ObjectName, owners map[types.UID]struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for owner := range a.of[budget] {
		if _, still := owners[owner]; still {
			continue
		}
		delete(a.of[budget], owner)
		if delete(a.by[owner], budget); len(a.by[owner]) == 0 {
			delete(a.by, owner)
		}
	}
	if len(a.of[budget]) == 0 {
		delete(a.of, budget)
	}
}

// budgets are those that depend on an owner.
func (a *asked) budgets(owner types.UID) (all []cache.ObjectName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for budget := range a.by[owner] {
		all = append(all, budget)
	}
	return all
}
