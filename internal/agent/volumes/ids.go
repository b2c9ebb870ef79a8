package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/agent/userns"
	"monopod.dev/monopod/internal/kit/atomicfile"
)

// Which IDs of the host a pod's user namespace has is known by a file in the pod's directory: it is there, durably, before anybody uses them, a restart of the
// agent finds it without asking a runtime (which may not tell, or be about to make the sandbox), and it goes with the directory, when nothing of the pod is
// left. Should the files be lost while pods run, they are made again from what the runtime tells.

func (m *Manager) idsFile(uid types.UID) string { return filepath.Join(m.podDir(uid), "userns") }

// IDs are the IDs of the host that the pod's user namespace maps its own to: those that it has had, or else, from now on, some that no other pod has.
func (m *Manager) IDs(ctx context.Context, uid types.UID) (userns.Range, error) {
	if err := checkUID(uid); err != nil {
		return userns.Range{}, err
	}
	if r, err := m.recordedIDs(uid); err == nil || !errors.Is(err, os.ErrNotExist) {
		return r, err
	}
	var held map[types.UID]userns.Range
	if m.cfg.HeldIDs != nil && !m.compared.Load() {
		var err error
		if held, err = m.cfg.HeldIDs(ctx); err != nil {
			return userns.Range{}, fmt.Errorf("which IDs the runtime's pods have is not known: %w", err)
		}
	}
	m.ids.Lock()
	defer m.ids.Unlock()
	for other, r := range held {
		if err := m.keepIDs(other, r); err != nil {
			return userns.Range{}, err
		}
	}
	m.compared.Store(true)
	if r, err := m.recordedIDs(uid); err == nil || !errors.Is(err, os.ErrNotExist) {
		return r, err
	}
	r, err := m.chooseIDs()
	if err != nil {
		return r, err
	}
	return r, m.recordIDs(uid, r)
}

// keepIDs records what a pod has by the runtime, unless there is a record. m.ids is held.
func (m *Manager) keepIDs(uid types.UID, r userns.Range) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	if _, err := os.Lstat(m.idsFile(uid)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return m.recordIDs(uid, r)
}

// chooseIDs finds IDs that no pod has by the records. m.ids is held.
func (m *Manager) chooseIDs() (userns.Range, error) {
	uids, err := m.UIDs()
	if err != nil {
		return userns.Range{}, err
	}
	var taken []userns.Range
	for _, uid := range uids {
		r, err := m.recordedIDs(uid)
		if errors.Is(err, os.ErrNotExist) { // it has none, or has just been removed
			continue
		}
		if err != nil {
			return userns.Range{}, err
		}
		taken = append(taken, r)
	}
	r, ok := userns.Choose(taken)
	if !ok {
		return r, fmt.Errorf("all %d ranges of IDs for user namespaces are taken: delete pods with hostUsers: false, also those that have finished: %w",
			userns.Slots, errdefs.ErrResourceExhausted)
	}
	return r, nil
}

func (m *Manager) recordIDs(uid types.UID, r userns.Range) error {
	raw, err := userns.Encode(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(m.podDir(uid), 0o750); err != nil {
		return err
	}
	// The directory may be as new as the file.
	return errors.Join(atomicfile.Write(m.idsFile(uid), raw, 0o600), atomicfile.SyncDir(m.cfg.Dir))
}

// recordedIDs reads the range of a pod. One that cannot be read may be any: then none is chosen for others either.
func (m *Manager) recordedIDs(uid types.UID) (userns.Range, error) {
	raw, err := os.ReadFile(m.idsFile(uid))
	if err != nil {
		return userns.Range{}, err
	}
	r, err := userns.Decode(raw)
	if err != nil {
		return r, fmt.Errorf("the IDs of the user namespace of pod %s, in %s: delete the pod, or remove the file when nothing of the pod runs: %w", uid, m.idsFile(uid), err)
	}
	return r, nil
}
