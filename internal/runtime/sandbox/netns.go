package sandbox

import (
	"fmt"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/kit/ids"
)

// NetworkNamespace is the path of a ready sandbox's network namespace, empty for the node's. One that is not ready is
// errdefs.ErrFailedPrecondition.
func (m *Manager) NetworkNamespace(id ids.SandboxID) (string, error) {
	rec, err := m.cfg.Records.Get(id)
	if err != nil {
		return "", err
	}
	if !rec.Ready() {
		return "", fmt.Errorf("sandbox %s is %s; its ports can be reached while it is ready: %w", id, rec.State(), errdefs.ErrFailedPrecondition)
	}
	return m.cfg.Folders.Namespace(&rec, ns.Network), nil
}
