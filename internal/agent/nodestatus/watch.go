package nodestatus

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// watch follows the node's own object until ctx ends, so that its deletion is seen at once and not by the next heartbeat, minutes later. Of the object
// only what names it is kept, its labels and taints, whether it takes pods, its extended resources, and whether it is ready.
func (r *Reporter) watch(ctx context.Context) {
	nodes := r.cfg.Client.CoreV1().Nodes()
	own := fields.OneTermEqualSelector(metav1.ObjectNameField, r.cfg.NodeName).String()
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.FieldSelector = own
				return nodes.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.FieldSelector = own
				return nodes.Watch(ctx, o)
			},
		}, r.cfg.Client),
		ObjectType: &v1.Node{},
		Transform: func(obj any) (any, error) {
			if n, ok := obj.(*v1.Node); ok {
				slim := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: n.Labels}}
				slim.Spec.Unschedulable, slim.Spec.Taints = n.Spec.Unschedulable, n.Spec.Taints
				slim.Status.Capacity = extended(n.Status.Capacity)
				for _, c := range n.Status.Conditions {
					if c.Type == v1.NodeReady {
						slim.Status.Conditions = []v1.NodeCondition{{Type: c.Type, Status: c.Status}}
					}
				}
				return slim, nil
			}
			return obj, nil
		},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(now any) {
				r.noticed(now.(*v1.Node))
				r.cordoned(false, now.(*v1.Node).Spec.Unschedulable)
			},
			UpdateFunc: func(old, now any) {
				was, is := old.(*v1.Node), now.(*v1.Node)
				r.noticed(is)
				r.cordoned(was.Spec.Unschedulable, is.Spec.Unschedulable)
				// After a gap in the watch it may be another object of the same name. And whoever heard nothing of this agent for too long has written
				// that nothing is known of it, beside what it has written itself.
				if was.UID != is.UID || !unknown(was) && unknown(is) {
					r.lose()
				}
			},
			DeleteFunc: func(any) { r.lose() },
		},
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		controller.RunWithContext(ctx)
	}()
	// One that was deleted between its registration and the watch's beginning is in no event.
	if cache.WaitForCacheSync(ctx.Done(), controller.HasSynced) && len(store.List()) == 0 {
		r.lose()
	}
	<-done
}

// unknown says that somebody else gives the agent up.
func unknown(n *v1.Node) bool {
	return len(n.Status.Conditions) > 0 && n.Status.Conditions[0].Status == v1.ConditionUnknown
}

// lose has the object asked for anew, and made where there is none. It does no harm to say so without need.
func (r *Reporter) lose() {
	r.mu.Lock()
	r.lost = true
	r.mu.Unlock()
	r.Changed()
}

// lostObject says once whether lose was called.
func (r *Reporter) lostObject() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	lost := r.lost
	r.lost = false
	return lost
}

// patience is how long to wait with the next registration: who deletes the object again and again gets it back later and later.
type patience struct {
	last time.Time     // of the last registration
	wait time.Duration // before the next one
}

// The object is made anew at once when it has been there for calmAfter; else after a wait that doubles from againFirst to againMax.
const (
	againFirst = time.Second
	againMax   = time.Minute
	calmAfter  = 5 * time.Minute
)

// until is when the object may be made.
func (p *patience) until() time.Time { return p.last.Add(p.wait) }

// made notes that it was made.
func (p *patience) made(now time.Time) {
	switch {
	case p.last.IsZero():
		// The first deletion is answered at once.
	case now.Sub(p.last) >= calmAfter:
		p.wait = 0
	default:
		p.wait = min(max(2*p.wait, againFirst), againMax)
	}
	p.last = now
}

// tooSoon says that the object is not made before a time.
type tooSoon struct{ until time.Time }

// Error implements error.
func (e *tooSoon) Error() string {
	return "the Node object is deleted again and again; it is made anew in " + time.Until(e.until).Round(time.Second).String()
}
