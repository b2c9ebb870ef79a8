package kinds

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/agent/volumes/claims"
)

// notLeft is the error of a volume that a pod has of which the API server knows nothing any more, because it was deleted by force: its containers may still write until they
// have ended, and whoever has come in its place would begin with what it finds now. A database that does loses what the one before acknowledges meanwhile. A pod that is
// deleted otherwise is known until it has given back all that it had.
func (c *claim) notLeft(pod string, r claims.Record) error {
	if c.cfg.Pods == nil {
		return nil
	}
	// What is there is listed before anybody is asked who is known: a pod that comes later is not in the list.
	entries, err := os.ReadDir(filepath.Dir(pod))
	if err != nil {
		return err
	}
	known := map[types.UID]bool{types.UID(filepath.Base(pod)): true}
	for _, p := range c.cfg.Pods() {
		known[p.UID] = true
	}
	for _, e := range entries {
		if known[types.UID(e.Name())] {
			continue
		}
		for _, other := range claims.All(filepath.Join(filepath.Dir(pod), e.Name())) {
			if other.VolumeUID == r.VolumeUID {
				return fmt.Errorf("volume %s is still in use by the pod with the UID %s, which was deleted by force and has not ended on this node: it is waited for", r.Volume, e.Name())
			}
		}
	}
	return nil
}
