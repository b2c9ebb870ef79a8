package volumes

import (
	"errors"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/kit/atomicfile"
)

// What was decided about a pod's end (package plan) is a file in the pod's directory, so that it outlives the agent while containers are being stopped by it, and goes
// with the directory.

func (m *Manager) verdictFile(uid types.UID) string { return filepath.Join(m.podDir(uid), "verdict") }

// KeepVerdict keeps what was decided about a pod's end, durably. A pod that has no directory has nothing to be ended.
func (m *Manager) KeepVerdict(uid types.UID, raw []byte) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	err := atomicfile.Write(m.verdictFile(uid), raw, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// Verdict is what was kept; nil: nothing.
func (m *Manager) Verdict(uid types.UID) ([]byte, error) {
	if err := checkUID(uid); err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(m.verdictFile(uid))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return raw, err
}
