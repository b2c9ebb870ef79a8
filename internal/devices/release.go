package devices

import (
	"context"
	"errors"
	"fmt"

	"monopod.dev/monopod/internal/devices/book"
)

// Release gives back all that a pod has, and its place in line. It is idempotent. Call it when none of the pod's containers runs any more.
func (m *Manager) Release(ctx context.Context, podUID string) error {
	unlock, err := m.pods.Lock(ctx, podUID)
	if err != nil {
		return fmt.Errorf("release the devices of pod %s: another call for this pod is not done: %w", podUID, err)
	}
	defer unlock()
	return m.clerk.drop(podUID)
}

// Holding is a container that the runtime has, running or not.
type Holding struct {
	PodUID, PodNamespace, PodName, Container string
	// Record is the value of the container's annotation Annotation; empty: it has none.
	Record string
}

// Reconcile compares the ledger with the world, after a start: it gives back what pods have that are not live any more, and learns from the
// containers of the others what the ledger does not know, because it was lost or is damaged. live must have every pod for which an Admit may
// be under way. Nothing new is granted before a Reconcile has succeeded.
func (m *Manager) Reconcile(ctx context.Context, live map[string]bool, holdings []Holding) error {
	var known []string
	m.clerk.with(func(b *book.Book) { known = b.Known() })
	var errs []error
	for _, uid := range known {
		if !live[uid] {
			errs = append(errs, m.Release(ctx, uid))
		}
	}
	told := map[string][]book.Told{}
	for _, h := range holdings {
		if live[h.PodUID] {
			told[h.PodUID] = append(told[h.PodUID], book.Told{PodNamespace: h.PodNamespace, PodName: h.PodName, Container: h.Container, Record: h.Record})
		}
	}
	for uid := range live {
		if live[uid] {
			errs = append(errs, m.learn(ctx, uid, told[uid]))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	m.clerk.note(func(b *book.Book) book.News {
		b.Compare()
		return book.All
	})
	return nil
}

// learn adds to the ledger what a pod's containers say of their devices and the ledger does not know.
func (m *Manager) learn(ctx context.Context, uid string, told []book.Told) error {
	unlock, err := m.pods.Lock(ctx, uid)
	if err != nil {
		return fmt.Errorf("the devices of pod %s: another call for this pod is not done: %w", uid, err)
	}
	defer unlock()
	return m.clerk.learn(uid, told)
}
