package nodelifecycle

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// pulse is what shows that a node's agent lives: when it differs from the last one, something was heard. The times are the agent's, in nanoseconds.
type pulse struct {
	renewed, posted int64
	ready           corev1.ConditionStatus
}

func pulseOf(node *corev1.Node, lease *coordinationv1.Lease) (p pulse) {
	if lease != nil && lease.Spec.RenewTime != nil {
		p.renewed = lease.Spec.RenewTime.UnixNano()
	}
	if c := condition(&node.Status, corev1.NodeReady); c != nil {
		p.posted, p.ready = c.LastHeartbeatTime.UnixNano(), c.Status
	}
	return p
}

// vitals are what is remembered of a node. Only the worker that has the node's turn uses them.
type vitals struct {
	uid types.UID
	// last is the last pulse, heard when it was seen, by the controller's clock.
	last  pulse
	heard time.Time
	timer clock.Timer
	// told are the pods that have lost their condition Ready since the node is not ready; nil: it is.
	told map[types.UID]bool
}

// hear notes a pulse, and reports whether it is another one than the last.
func (r *vitals) hear(p pulse, now time.Time) bool {
	if p == r.last && !r.heard.IsZero() {
		return false
	}
	r.last, r.heard = p, now
	return true
}

// left is for how long nothing more may be heard of a node; 0: it is over. Negative: nothing is known of it already, so there is nothing to wait for.
func (r *vitals) left(node *corev1.Node, now time.Time) time.Duration {
	if allUnknown(&node.Status) {
		return -1
	}
	grace := monitorGrace
	if condition(&node.Status, corev1.NodeReady) == nil {
		grace = startupGrace
	}
	return max(r.heard.Add(grace).Sub(now), 0)
}

// wake has the node looked at when its time is over, and no sooner; negative: not at all.
func (r *vitals) wake(left time.Duration, after func(time.Duration) clock.Timer) {
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	if left >= 0 {
		r.timer = after(left)
	}
}

// records are the nodes' vitals, by their names. The zero value has none.
type records struct {
	mu sync.Mutex // guards what follows
	by map[string]*vitals
	// down are the nodes that are not ready.
	down map[string]bool
}

// of returns a node's vitals. One that was made anew under its name begins anew.
func (rs *records) of(node *corev1.Node) *vitals {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.by == nil {
		rs.by, rs.down = map[string]*vitals{}, map[string]bool{}
	}
	r := rs.by[node.Name]
	if r == nil || r.uid != node.UID {
		rs.drop(node.Name)
		r = &vitals{uid: node.UID}
		rs.by[node.Name] = r
	}
	return r
}

func (rs *records) forget(name string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.drop(name)
}

func (rs *records) drop(name string) {
	if r := rs.by[name]; r != nil && r.timer != nil {
		r.timer.Stop()
	}
	delete(rs.by, name)
	delete(rs.down, name)
}

func (rs *records) setDown(name string, down bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if delete(rs.down, name); down {
		rs.down[name] = true
	}
}

func (rs *records) isDown(name string) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.down[name]
}

// stop ends all timers.
func (rs *records) stop() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for name := range rs.by {
		rs.drop(name)
	}
}
