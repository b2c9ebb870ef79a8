package devices

import (
	"context"
	"fmt"
	"time"

	"monopod.dev/monopod/internal/kit/failpoint"
)

// settle puts on disk what a pod was given and what is not there yet. The pod's lock is held.
func (m *Manager) settle(uid string) error {
	m.mu.Lock()
	pod, is := m.unwritten[uid]
	m.mu.Unlock()
	if !is {
		return nil
	}
	if err := failpoint.Hit("devices/grant/before-persist"); err != nil {
		return err
	}
	if err := m.ledger.put(uid, pod); err != nil {
		return fmt.Errorf("persist the devices of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	m.mu.Lock()
	m.granted[uid] = pod
	delete(m.reserved, uid)
	delete(m.unwritten, uid)
	waited := m.queue.leave(uid)
	m.mu.Unlock()
	if waited {
		m.subscribers.tick() // for those behind it
	} else {
		m.subscribers.tickWatchers()
	}
	if err := failpoint.Hit("devices/grant/persisted"); err != nil {
		return err
	}
	m.log.Info("devices granted", "pod", pod.Namespace+"/"+pod.Name, "podUID", uid, "devices", pod.summary())
	return nil
}

// settleLater is settle for one who has not got the pod's lock. What fails is tried again, and told, when the pod's devices are asked for.
func (m *Manager) settleLater(ctx context.Context, uid string) {
	unlock, err := m.pods.Lock(ctx, uid)
	if err != nil {
		return
	}
	defer unlock()
	if err := m.settle(uid); err != nil {
		m.log.Warn("devices granted, and not on record yet; no container gets them before they are", "podUID", uid, "error", err)
	}
}

// writeBehind is how long a record may wait for its way to the disk; who needs it there sooner writes it himself. A pod's sandbox is begun in that
// time: with few processors all of them can be in a write, of the pod's first status too, and that takes Go's scheduler milliseconds to see.
const writeBehind = 3 * time.Millisecond

// later has something done in the background, or not at all: when Run has ended.
func (m *Manager) later(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closing {
		return false
	}
	m.writes.Add(1)
	time.AfterFunc(writeBehind, func() {
		defer m.writes.Done()
		f()
	})
	return true
}

// keep puts a record in the place of another one, if it is another.
func (m *Manager) keep(uid string, rec, next podRecord) error {
	if rec.equal(next) {
		return nil
	}
	if err := m.ledger.put(uid, next); err != nil {
		return fmt.Errorf("persist the devices of pod %s/%s: %w", rec.Namespace, rec.Name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.granted[uid] = next
	return nil
}
