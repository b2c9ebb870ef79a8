package node

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/host/proc"
)

// identity is by what others know this API server's controllers. It follows from the boot and from the lock that the process holds: whoever has the same one is a
// process that stands in the place of another, which has ended.
func identity(c *v1alpha1.NodeConfiguration) (string, error) {
	boot, err := proc.BootID()
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	file := partAPIServer.lockFile(c.RunDir)
	if err := unix.Stat(file, &st); err != nil {
		return "", fmt.Errorf("lock %s, by which others know the controllers: %w", file, err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", boot, st.Dev, st.Ino))
	return c.NodeName + "_" + hex.EncodeToString(sum[:8]), nil
}
