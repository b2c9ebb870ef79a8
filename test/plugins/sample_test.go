//go:build plugins

package plugins

import (
	"testing"

	"monopod.dev/monopod/test/plugins/plugin"
)

// TestSample: devices that are mounts.
func TestSample(t *testing.T) {
	plugin.Need(t, plugin.SampleProgram)
	n := startNode(t)
	tryOut(t, n, plugin.Sample(t, place(n)))
}

// TestSampleWithCDI: the plugin of a resource writes a CDI spec of the same name, and names its devices in what it answers.
func TestSampleWithCDI(t *testing.T) {
	plugin.Need(t, plugin.SampleProgram)
	n := startNode(t)
	tryOut(t, n, plugin.SampleWithCDI(t, place(n)))
}
