//go:build plugins

package plugins

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"monopod.dev/monopod/test/harness"
)

// fakeGPU makes what Intel's plugin looks at of the i-th GPU below root: a PCI device in sysfs, and its nodes.
func fakeGPU(t *testing.T, root string, i int) {
	t.Helper()
	card, render, pci := fmt.Sprintf("card%d", i), fmt.Sprintf("renderD%d", 128+i), fmt.Sprintf("0000:0%d:00.0", i+1)
	device := filepath.Join(root, "sys/devices/pci0000:00", pci)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{device + "/drm/" + card, device + "/drm/" + render, root + "/sys/class/drm", root + "/sys/bus/pci/drivers/i915", root + "/dev/dri/by-path"} {
		check(os.MkdirAll(dir, 0o755))
	}
	check(os.WriteFile(device+"/vendor", []byte("0x8086\n"), 0o644))
	check(os.WriteFile(device+"/device", []byte("0x4907\n"), 0o644))
	check(os.Symlink("../../../bus/pci/drivers/i915", device+"/driver"))
	check(os.Symlink("../../../"+pci, device+"/drm/"+card+"/device"))
	devNodes(t, filepath.Join(root, "dev/dri", card), filepath.Join(root, "dev/dri", render))
	check(os.Symlink("../"+card, root+"/dev/dri/by-path/pci-"+pci+"-card"))
	check(os.Symlink("../"+render, root+"/dev/dri/by-path/pci-"+pci+"-render"))
	check(os.Symlink("../../devices/pci0000:00/"+pci+"/drm/"+card, root+"/sys/class/drm/"+card)) // by which it is found
}

// startIntel starts Intel's gpu_plugin with the GPUs below root, each for two containers. It is kept: after the death of a node it panics (docs/DEVICES.md).
func startIntel(t *testing.T, n *harness.Node, root string) *plugin {
	t.Helper()
	return keep(t, n, nil, binary(t, "MONOPOD_PLUGIN_INTEL_GPU"), "-prefix", root, "-shared-dev-num", "2", "-allocation-policy", "packed", "-enable-monitoring", "-v", "4")
}

// TestIntel: GPUs that containers share, preferred ones, links that are mounted, and a CDI spec that is written when they are allocated.
func TestIntel(t *testing.T) {
	binary(t, "MONOPOD_PLUGIN_INTEL_GPU")
	n := startNode(t)
	root := filepath.Join(n.Dir, "gpu")
	fakeGPU(t, root, 0)
	fakeGPU(t, root, 1)
	const resource = "gpu.intel.com/i915"
	dri := root + "/dev/dri"
	tryOut(t, n, subject{resource: resource, devices: 4, start: func() *plugin { return startIntel(t, n, root) },
		use: fmt.Sprintf("for d in %[1]s/card* %[1]s/renderD* %[1]s/by-path/*-card %[1]s/by-path/*-render; do echo x > $d || exit 1; done", dri)})
	// The plugin prefers the GPU that has a container already.
	if have := holdings(t, n, resource)["a"]; !slices.Equal(have, []string{"card0-0"}) {
		t.Errorf("the pod has %q", have)
	}
	apply(n, "packed", resource, 1, fmt.Sprintf(`test "$(cd %s; echo card*)" = card0`, dri))
	awaitUsed(t, n, "packed")

	// One device has the nodes of all GPUs.
	awaitResource(t, n, "gpu.intel.com/monitoring", 1, 1)
	apply(n, "monitor", "gpu.intel.com/monitoring", 1, fmt.Sprintf(`test "$(cd %s; echo card*)" = "card0 card1"`, dri))
	awaitUsed(t, n, "monitor")
	fakeGPU(t, root, 2)
	awaitResource(t, n, resource, 6, 6)

	// The CDI specs that the plugin writes are its own: their devices are no resource beside it.
	if specs, _ := filepath.Glob(filepath.Join(cdiDir(n), "*")); len(specs) == 0 {
		t.Error("the plugin wrote no CDI spec")
	}
	for _, d := range devices(t, n) {
		if filepath.Dir(d.Source) != n.PluginDir() {
			t.Errorf("%+v is another source's", d)
		}
	}
}
