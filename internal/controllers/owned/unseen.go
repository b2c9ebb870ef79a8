package owned

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// Unseen is what a controller has written for its owners and what its caches do not show yet. Whoever decided by such a cache would make a pod twice, or
// delete another one in the place of one that is going already. So an owner with something unseen waits; the event that shows it wakes the owner.
//
// It does not wait for ever. An event that has not come after a minute does not come: the API server has been given the state of another time, say, or the
// dependent went while nobody watched. Then the owner is decided about by what the caches show: whatever is asked for twice by that the API server refuses, or
// it has been so already.
//
// The zero value is ready. Its methods are safe for concurrent use.
type Unseen struct {
	now func() time.Time // nil: the host's

	mu sync.Mutex
	of map[cache.ObjectName]*unseen
	// goingOf are the owners that wait for a dependent to go, of which there is more than one only if it has changed hands.
	goingOf map[types.UID][]cache.ObjectName
}

// longEnough is how long something is waited for.
const longEnough = time.Minute

type unseen struct {
	// written is the newest version that was written, by the cache that is to show it.
	written map[Versioned]written
	// going are the dependents whose deletion the API server has accepted, and since when. They have no version that could be waited for.
	going map[types.UID]time.Time
}

type written struct {
	version string
	at      time.Time
}

func (u *Unseen) time() time.Time {
	if u.now != nil {
		return u.now()
	}
	return time.Now()
}

// Versioned is a cache that says up to which resource version it has seen its resource.
type Versioned interface{ LastStoreSyncResourceVersion() string }

// Wrote notes a write for an owner, which in a cache will be seen at a resource version.
func (u *Unseen) Wrote(owner cache.ObjectName, in Versioned, version string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	of := u.owner(owner)
	if before, ok := of.written[in]; ok && !olderThan(before.version, version) {
		return
	}
	of.written[in] = written{version, u.time()}
}

// Goes notes that a dependent is being deleted. It is called before the deletion is asked for: the event may be quicker than the answer.
func (u *Unseen) Goes(owner cache.ObjectName, dependent types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	of := u.owner(owner)
	if _, has := of.going[dependent]; !has {
		if u.goingOf == nil {
			u.goingOf = map[types.UID][]cache.ObjectName{}
		}
		u.goingOf[dependent] = append(u.goingOf[dependent], owner)
	}
	of.going[dependent] = u.time()
}

// Went notes that a dependent is gone or ending, as a cache or the API server says, or that it stays, and returns who waited for that: by then it may be
// another's, or nobody's.
func (u *Unseen) Went(dependent types.UID) []cache.ObjectName {
	u.mu.Lock()
	defer u.mu.Unlock()
	owners := u.goingOf[dependent]
	for _, owner := range owners {
		delete(u.of[owner].going, dependent)
	}
	delete(u.goingOf, dependent)
	return owners
}

// Nothing says whether the caches show all that was written for an owner.
func (u *Unseen) Nothing(owner cache.ObjectName) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	of := u.of[owner]
	if of == nil {
		return true
	}
	begin := u.time().Add(-longEnough)
	for in, wrote := range of.written {
		if !olderThan(in.LastStoreSyncResourceVersion(), wrote.version) || wrote.at.Before(begin) {
			delete(of.written, in)
		}
	}
	for dependent, since := range of.going {
		if since.Before(begin) {
			u.stop(owner, dependent)
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
	if of := u.of[owner]; of != nil {
		for dependent := range of.going {
			u.stop(owner, dependent)
		}
	}
	delete(u.of, owner)
}

// stop has an owner wait no longer for a dependent to go.
func (u *Unseen) stop(owner cache.ObjectName, dependent types.UID) {
	delete(u.of[owner].going, dependent)
	left := slices.DeleteFunc(u.goingOf[dependent], func(o cache.ObjectName) bool { return o == owner })
	if u.goingOf[dependent] = left; len(left) == 0 {
		delete(u.goingOf, dependent)
	}
}

func (u *Unseen) owner(name cache.ObjectName) *unseen {
	of := u.of[name]
	if of == nil {
		of = &unseen{written: map[Versioned]written{}, going: map[types.UID]time.Time{}}
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
