package devices

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"monopod.dev/monopod/internal/kit/failpoint"
)

// Release gives back all that a pod has, and its place in line. It is idempotent. Call it when none of the pod's containers runs any more.
func (m *Manager) Release(ctx context.Context, podUID string) error {
	unlock, err := m.pods.Lock(ctx, podUID)
	if err != nil {
		return fmt.Errorf("release the devices of pod %s: another call for this pod is not done: %w", podUID, err)
	}
	defer unlock()
	return m.drop(podUID)
}

// drop is Release for one who has the pod's lock.
func (m *Manager) drop(podUID string) error {
	m.mu.Lock()
	pod, ok := m.granted[podUID]
	_, damaged := m.unreadable[podUID]
	m.leave(podUID)
	if m.released != nil {
		m.released[podUID] = true
	}
	m.mu.Unlock()
	m.unreserve(podUID)
	if !ok && !damaged {
		return nil // most pods have no devices: spare them the write
	}
	if err := m.ledger.remove(podUID); err != nil {
		return fmt.Errorf("release the devices of pod %s: %w", podUID, err)
	}
	if err := failpoint.Hit("devices/release/removed"); err != nil {
		return err
	}
	m.mu.Lock()
	delete(m.granted, podUID)
	delete(m.unreadable, podUID)
	m.mu.Unlock()
	if ok {
		m.log.Info("devices released", "pod", pod.Namespace+"/"+pod.Name, "podUID", podUID)
	}
	m.subscribers.tick()
	return nil
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
	m.mu.Lock()
	known := slices.Concat(slices.Collect(maps.Keys(m.granted)), slices.Collect(maps.Keys(m.unreadable)), m.queue.uids())
	m.mu.Unlock()
	slices.Sort(known)
	var errs []error
	for _, uid := range slices.Compact(known) {
		if uid != "" && !live[uid] {
			errs = append(errs, m.Release(ctx, uid))
		}
	}
	byPod := map[string][]Holding{}
	for _, h := range holdings {
		if live[h.PodUID] {
			byPod[h.PodUID] = append(byPod[h.PodUID], h)
		}
	}
	for uid := range live {
		if live[uid] {
			errs = append(errs, m.learn(ctx, uid, byPod[uid]))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	m.mu.Lock()
	m.settled, m.released = true, nil
	m.mu.Unlock()
	m.subscribers.tick()
	return nil
}

// learn adds to the ledger what a pod's containers say of their devices and the ledger does not know.
func (m *Manager) learn(ctx context.Context, uid string, holdings []Holding) error {
	unlock, err := m.pods.Lock(ctx, uid)
	if err != nil {
		return fmt.Errorf("the devices of pod %s: another call for this pod is not done: %w", uid, err)
	}
	defer unlock()
	m.mu.Lock()
	rec := m.granted[uid]
	damaged, released := m.unreadable[uid], m.released[uid]
	m.mu.Unlock()
	if released {
		return nil // it has ended since its containers were listed
	}
	found := map[string]containerRecord{}
	silent := false
	for _, h := range holdings {
		if _, known := rec.Containers[h.Container]; known {
			continue
		}
		if h.Record == "" {
			silent = true // it has no devices, or was made by a version that did not write them down
			continue
		}
		c, err := parseAnnotation(h.Record)
		if err != nil {
			err = fmt.Errorf("the annotation %s of container %q of pod %s/%s (%s) cannot be read: %w", Annotation, h.Container, h.PodNamespace, h.PodName, uid, err)
			m.log.Error("it is not known which devices a container has; none are granted to new pods until its pod is deleted", "error", err)
			m.mu.Lock()
			m.unreadable[uid] = err
			m.mu.Unlock()
			return nil
		}
		if len(c.Grants) > 0 {
			found[h.Container] = c
			rec.Namespace, rec.Name = h.PodNamespace, h.PodName
		}
	}
	if damaged != nil && silent {
		return nil // nobody can tell
	}
	if len(found) > 0 {
		next := rec.with(found)
		if err := m.ledger.put(uid, next); err != nil {
			return fmt.Errorf("persist the devices of pod %s/%s: %w", next.Namespace, next.Name, err)
		}
		m.log.Warn("the ledger of devices did not know what a pod has; it has learnt it from its containers", "pod", next.Namespace+"/"+next.Name, "podUID", uid, "devices", next.summary())
		m.mu.Lock()
		m.granted[uid] = next
		delete(m.unreadable, uid)
		m.mu.Unlock()
		return nil
	}
	if damaged == nil {
		return nil
	}
	// None of its containers has devices.
	if err := m.ledger.remove(uid); err != nil {
		return fmt.Errorf("remove the damaged record of pod %s: %w", uid, err)
	}
	m.mu.Lock()
	delete(m.unreadable, uid)
	m.mu.Unlock()
	return nil
}
