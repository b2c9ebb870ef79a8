package binder

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// eventPatience is how long a pod has to wait for devices before an event warns of it: what lasts no longer (the devices of a pod that has just ended, a plugin
// that is restarted) concerns nobody. Its status tells it at once.
const eventPatience = time.Second

// news knows of which reasons events have told the pods that have no node.
type news struct {
	mu   sync.Mutex
	pods map[types.UID]*tidings
}

type tidings struct {
	told  string    // by the last event
	since time.Time // when the pod first waited for something else; zero: it does not
}

// look says whether an event is to tell why a pod waits, or after how long to look again whether it is to; 0: never, as far as is known. told is what its status
// said before, which an earlier binder may have told of.
func (n *news) look(uid types.UID, told, why string, forDevices bool, now time.Time) (tell bool, again time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.pods[uid]
	if t == nil {
		if n.pods == nil {
			n.pods = map[types.UID]*tidings{}
		}
		t = &tidings{told: told}
		n.pods[uid] = t
	}
	if why == t.told {
		t.since = time.Time{}
		return false, 0
	}
	if t.since.IsZero() {
		t.since = now
	}
	if left := t.since.Add(eventPatience).Sub(now); forDevices && left > 0 {
		return false, left
	}
	t.told, t.since = why, time.Time{}
	return true, 0
}

func (n *news) forget(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pods, uid)
}
