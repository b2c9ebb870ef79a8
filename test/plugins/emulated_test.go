//go:build plugins

package plugins

import (
	"testing"

	"monopod.dev/monopod/test/plugins/plugin"
)

// TestEmulated: our own plugin is tried as those of others are.
func TestEmulated(t *testing.T) {
	n := startNode(t)
	tryOut(t, n, plugin.Emulated(t, place(n)))
}
