package owned

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// Unseen is what a controller has written for its owners and what its caches do not show yet. Whoever decided by such a cache would make a pod twice, or
// delete another one in the place of one that is going already. So an owner with something unseen waits; the event that shows it wakes the owner.
//
// The zero value is ready. Its methods are safe for concurrent use.
type Unseen struct {
	mu sync.Mutex
	of map[cache.ObjectName]*unseen
}

type unseen struct {
	// written is the newest version that was written, by the cache that is to show it.
	written map[Versioned]string
	// going are the dependents whose deletion the API server has accepted. They have no version that could be waited for.
	going map[types.UID]struct{}
}

// Versioned is a cache that says up to which resource version it has seen its resource.
type Versioned interface{ LastStoreSyncResourceVersion() string }

// Wrote notes a write for an owner, which in a cache will be seen at a resource version.
func (u *Unseen) Wrote(owner cache.ObjectName, in Versioned, version string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	of := u.owner(owner)
	if before, ok := of.written[in]; ok && !olderThan(before, version) {
		return
	}
	of.written[in] = version
}

// Goes notes that a dependent is being deleted. It is called before the deletion is asked for: the event may be quicker than the answer.
func (u *Unseen) Goes(owner cache.ObjectName, dependent types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.owner(owner).going[dependent] = struct{}{}
}

// Went notes that a dependent is gone or ending, as a cache or the API server says, or that it stays.
func (u *Unseen) Went(owner cache.ObjectName, dependent types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if of := u.of[owner]; of != nil {
		delete(of.going, dependent)
	}
}

// Nothing says whether the caches show all that was written for an owner.
func (u *Unseen) Nothing(owner cache.ObjectName) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	of := u.of[owner]
	if of == nil {
		return true
	}
	for in, version := range of.written {
		if !olderThan(in.LastStoreSyncResourceVersion(), version) {
			delete(of.written, in)
		}
	}
	if len(of.written) > 0 || len(of.going) > 0 {
		return false
	}
	delete(u.of, owner)
	return true
}

// Forget forgets an owner that is gone.
func (u *Unseen) Forget(owner cache.ObjectName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.of, owner)
}

func (u *Unseen) owner(name cache.ObjectName) *unseen {
	of := u.of[name]
	if of == nil {
		of = &unseen{written: map[Versioned]string{}, going: map[types.UID]struct{}{}}
		if u.of == nil {
			u.of = map[cache.ObjectName]*unseen{}
		}
		u.of[name] = of
	}
	return of
}

// olderThan says whether a resource version is older than another one. One that cannot be compared (a cache that does not tell it) is not: waiting for it
// would never end.
func olderThan(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
