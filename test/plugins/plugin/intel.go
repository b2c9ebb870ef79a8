package plugin

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// GPUs is the folder below which Intel finds its GPUs.
func (w Place) GPUs() string { return filepath.Join(w.Dir, "gpu") }

// Intel is Intel's gpu_plugin with two GPUs that are files, each for two containers, and with a device of all their nodes, gpu.intel.com/monitoring. It is
// kept: after the death of a node it panics (docs/DEVICES.md).
func Intel(t testing.TB, w Place) Subject {
	t.Helper()
	root := w.GPUs()
	FakeGPU(t, root, 0)
	FakeGPU(t, root, 1)
	return Subject{Resource: "gpu.intel.com/i915", Devices: 4,
		Use: fmt.Sprintf("for d in %[1]s/card* %[1]s/renderD* %[1]s/by-path/*-card %[1]s/by-path/*-render; do echo x > $d || exit 1; done", root+"/dev/dri"),
		Start: func() *Process {
			return w.keep(t, nil, Need(t, IntelProgram), "-prefix", root, "-shared-dev-num", "2", "-allocation-policy", "packed", "-enable-monitoring", "-v", "4")
		}}
}

// FakeGPU makes what Intel's plugin looks at of the i-th GPU below root: a PCI device in sysfs, and its nodes.
func FakeGPU(t testing.TB, root string, i int) {
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
	Nodes(t, filepath.Join(root, "dev/dri", card), filepath.Join(root, "dev/dri", render))
	check(os.Symlink("../"+card, root+"/dev/dri/by-path/pci-"+pci+"-card"))
	check(os.Symlink("../"+render, root+"/dev/dri/by-path/pci-"+pci+"-render"))
	check(os.Symlink("../../devices/pci0000:00/"+pci+"/drm/"+card, root+"/sys/class/drm/"+card)) // by which it is found
}
