package volumebinding

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// pace is how often one who waits is told for what, which is also how often it is looked at without a reason: as often as Kubernetes' controller does.
const pace = 15 * time.Second

// told is what was told of objects last, so that it is told again when it is something else, and otherwise at the pace. The zero value is ready. Its methods are
// safe for concurrent use.
type told struct {
	now func() time.Time // nil: the host's

	mu   sync.Mutex
	last map[cache.ObjectName]telling
}

type telling struct {
	uid   types.UID
	event Event
	at    time.Time
}

// due says whether an object's event is to be told now.
func (t *told) due(name cache.ObjectName, uid types.UID, event Event) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.now != nil {
		now = t.now()
	}
	if before, ok := t.last[name]; ok && before.uid == uid && before.event == event && now.Sub(before.at) < pace {
		return false
	}
	if t.last == nil {
		t.last = map[cache.ObjectName]telling{}
	}
	t.last[name] = telling{uid, event, now}
	return true
}

// forget forgets an object that waits no longer.
func (t *told) forget(name cache.ObjectName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.last, name)
}
