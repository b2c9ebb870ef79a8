package devices

import (
	"fmt"
	"log/slog"
	"sync"

	"monopod.dev/monopod/internal/devices/book"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// clerk keeps the book: what is noted there as on record is on disk before, and whom a change concerns is told after it. Its methods are safe for concurrent use;
// those that change what one pod has are called by who has the pod's lock.
type clerk struct {
	ledger      ledger
	subscribers *subscribers
	log         *slog.Logger

	mu   sync.Mutex // guards what follows; never held over I/O
	book *book.Book
}

// note changes the book, and tells those whom that concerns.
func (c *clerk) note(change func(*book.Book) book.News) {
	c.mu.Lock()
	news := change(c.book)
	c.mu.Unlock()
	c.subscribers.tell(news)
}

// with looks into the book, or notes there what is news to nobody.
func (c *clerk) with(do func(*book.Book)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do(c.book)
}

// record is what is on disk for a pod; false: nothing is.
func (c *clerk) record(uid string) (rec book.Record, is bool) {
	c.with(func(b *book.Book) { rec, is = b.Record(uid) })
	return rec, is
}

// decide decides about a request, and notes the decision.
func (c *clerk) decide(w *book.World, req book.Request, adv book.Advice) (d book.Decision) {
	c.note(func(b *book.Book) book.News {
		d = b.Decide(w, req, adv)
		return b.Enter(req, d)
	})
	return d
}

// retract takes back what a pod has and what is not on disk.
func (c *clerk) retract(uid string) {
	c.note(func(b *book.Book) book.News { return b.Retract(uid) })
}

// settle puts on disk what a pod was promised and what is not there yet.
func (c *clerk) settle(uid string) (err error) {
	var pod book.Record
	var is bool
	c.with(func(b *book.Book) { pod, is = b.Promised(uid) })
	if !is {
		return nil
	}
	if err := failpoint.Hit("devices/grant/before-persist"); err != nil {
		return err
	}
	if err := c.put(uid, pod); err != nil {
		return err
	}
	c.note(func(b *book.Book) (news book.News) {
		news, err = b.Wrote(uid)
		return news
	})
	if err != nil {
		return err
	}
	if err := failpoint.Hit("devices/grant/persisted"); err != nil {
		return err
	}
	c.log.Info("devices granted", "pod", pod.Namespace+"/"+pod.Name, "podUID", uid, "devices", pod.Summary())
	return nil
}

// keep puts a record in the place of another one, if it is another.
func (c *clerk) keep(uid string, rec, next book.Record) error {
	if rec.Equal(next) {
		return nil
	}
	if err := c.put(uid, next); err != nil {
		return err
	}
	c.note(func(b *book.Book) book.News { return b.Amend(uid, next) })
	return nil
}

// keepOf keeps of a pod's record the containers that are left, and returns what it is then: empty if there are none.
func (c *clerk) keepOf(uid string, pod book.Record, left map[string]book.Container) (book.Record, error) {
	if len(left) == 0 {
		return book.Record{}, c.drop(uid)
	}
	next := pod
	next.Containers = left
	return next, c.keep(uid, pod, next)
}

// drop gives back all that a pod has, and its place in the line.
func (c *clerk) drop(uid string) error {
	pod, is := c.record(uid)
	var erase bool
	c.note(func(b *book.Book) (news book.News) {
		erase, news = b.Release(uid)
		return news
	})
	if !erase {
		return nil // most pods have no devices: spare them the write
	}
	if err := c.ledger.remove(uid); err != nil {
		return fmt.Errorf("release the devices of pod %s: %w", uid, err)
	}
	if err := failpoint.Hit("devices/release/removed"); err != nil {
		return err
	}
	c.note(func(b *book.Book) book.News {
		b.Erase(uid)
		return book.All
	})
	if is {
		c.log.Info("devices released", "pod", pod.Namespace+"/"+pod.Name, "podUID", uid)
	}
	return nil
}

// learn adds to what is on record of a pod what its containers say of their devices and the record does not know.
func (c *clerk) learn(uid string, told []book.Told) error {
	var l book.Lesson
	c.with(func(b *book.Book) { l = b.Learn(uid, told) })
	switch {
	case l.Doubt != nil:
		err := fmt.Errorf("the annotation %s of container %q of pod %s/%s (%s) cannot be read: %w", Annotation, l.Of.Container, l.Of.PodNamespace, l.Of.PodName, uid, l.Doubt)
		c.log.Error("it is not known which devices a container has; none are granted to new pods until its pod is deleted", "error", err)
		c.with(func(b *book.Book) { b.Damage(uid, err) })
	case l.Next != nil:
		if err := c.put(uid, *l.Next); err != nil {
			return err
		}
		c.log.Warn("the ledger of devices did not know what a pod has; it has learnt it from its containers", "pod", l.Next.Namespace+"/"+l.Next.Name, "podUID", uid, "devices", l.Next.Summary())
		c.with(func(b *book.Book) { b.Learnt(uid, *l.Next) })
	case l.Erase:
		if err := c.ledger.remove(uid); err != nil {
			return fmt.Errorf("remove the damaged record of pod %s: %w", uid, err)
		}
		c.with(func(b *book.Book) { b.Erase(uid) })
	}
	return nil
}

// put writes a record to the disk.
func (c *clerk) put(uid string, rec book.Record) error {
	if err := c.ledger.put(uid, rec); err != nil {
		return fmt.Errorf("persist the devices of pod %s/%s: %w", rec.Namespace, rec.Name, err)
	}
	return nil
}
