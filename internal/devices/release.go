package devices

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"monopod.dev/monopod/internal/failpoint"
)

// Release gives back all that a pod has. It is idempotent. Call it when none of the pod's containers runs any more.
func (m *Manager) Release(ctx context.Context, podUID string) error {
	unlock, err := m.pods.lock(ctx, podUID)
	if err != nil {
		return fmt.Errorf("release the devices of pod %s: another call for this pod is not done: %w", podUID, err)
	}
	defer unlock()

	m.mu.Lock()
	pod, ok := m.granted[podUID]
	damaged := m.unreadable != nil
	m.mu.Unlock()
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
	m.mu.Unlock()
	if ok {
		m.log.Info("devices released", "pod", pod.Namespace+"/"+pod.Name, "podUID", podUID)
	}
	if damaged {
		m.reread()
	}
	m.tick()
	return nil
}

// Reconcile gives back what pods have that are not live any more, after a restart for instance. live must have every pod
// for which a Grant may be under way.
func (m *Manager) Reconcile(ctx context.Context, live map[string]bool) error {
	m.mu.Lock()
	uids := slices.Sorted(maps.Keys(m.granted))
	damaged := m.unreadable != nil
	m.mu.Unlock()
	var errs []error
	for _, uid := range uids {
		if !live[uid] {
			errs = append(errs, m.Release(ctx, uid))
		}
	}
	if damaged && !m.anyUnreadable(live) {
		m.log.Warn("device ledger: the records that cannot be read belong to no living pod; devices are granted again")
		m.mu.Lock()
		m.unreadable = nil
		m.mu.Unlock()
		m.tick()
	}
	return errors.Join(errs...)
}

func (m *Manager) anyUnreadable(live map[string]bool) bool {
	for uid := range live {
		if live[uid] && m.ledger.unreadable(uid) {
			return true
		}
	}
	return false
}

// reread looks whether there are still records that cannot be read.
func (m *Manager) reread() {
	_, err := m.ledger.load()
	m.mu.Lock()
	m.unreadable = err
	m.mu.Unlock()
}
