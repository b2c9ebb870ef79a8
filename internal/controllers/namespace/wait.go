package namespace

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// together is how long after one object has gone the namespace is looked at again: others go with it.
	together = 50 * time.Millisecond
	// changed is how long after an object that stays has changed: its finalizers may be fewer, which the conditions tell.
	changed = time.Second
	// unwatched is how often a namespace is looked at of which something cannot be watched.
	unwatched = 15 * time.Second
)

// wait has a namespace looked at again when what is left in it changes, or should have gone. The watches end with the next look.
func (c *Controller) wait(ctx context.Context, name string, left []remainder) {
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	c.waits[name] = cancel
	c.mu.Unlock()
	for _, r := range left {
		if !r.due.IsZero() {
			c.queue.AddAfter(name, time.Until(r.due))
		}
		c.watches.Go(func() { c.watch(ctx, name, r) })
	}
}

func (c *Controller) stopWaiting(name string) {
	c.mu.Lock()
	cancel := c.waits[name]
	delete(c.waits, name)
	c.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

func (c *Controller) watch(ctx context.Context, name string, r remainder) {
	w, err := c.config.Metadata.Resource(r.GroupVersionResource).Namespace(name).Watch(ctx, metav1.ListOptions{ResourceVersion: r.version})
	if err != nil {
		if ctx.Err() == nil {
			c.queue.AddAfter(name, unwatched)
		}
		return
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-w.ResultChan():
			switch {
			case ctx.Err() != nil:
				return
			case !ok || e.Type == watch.Error: // the server bounds how long a watch lasts
				c.queue.AddAfter(name, changed)
				return
			case e.Type == watch.Deleted:
				c.queue.AddAfter(name, together)
			case e.Type == watch.Added, e.Type == watch.Modified:
				c.queue.AddAfter(name, changed)
			}
		}
	}
}
