package numa

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDevices(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d := Devices{Sys: filepath.Join(root, "sys"), Proc: filepath.Join(root, "proc")}
	file := func(path, content string) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target, path string) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Join(root, target), 0o755), os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(filepath.Join(root, target), path)); err != nil {
			t.Fatal(err)
		}
	}
	const card, unknown = "sys/devices/pci0000:80/0000:80:01.0", "sys/devices/pci0000:00/0000:00:02.0"
	file(card+"/numa_node", "1\n")
	file(unknown+"/numa_node", "-1\n")
	file("sys/devices/numa_node", "7\n") // above all devices: nobody's
	link(card+"/drm/renderD128", "sys/dev/char/226:128")
	link(unknown+"/usb1/1-1/1-1:1.0/ttyUSB0/tty/ttyUSB0", "sys/dev/char/188:0")
	link(card+"/nvme/nvme0/nvme0n1", "sys/dev/block/259:0")
	link("sys/devices/virtual/mem/null", "sys/dev/char/1:3")
	link("sys/devices/virtual/vfio/12", "sys/dev/char/511:12")
	link(card, "sys/kernel/iommu_groups/12/devices/0000:80:01.0")
	link(unknown, "sys/kernel/iommu_groups/12/devices/0000:00:02.0")
	link(card+"/net/eth5", "sys/class/net/eth5")
	link(card, "sys/bus/pci/devices/0000:80:01.0")
	file("proc/driver/nvidia/gpus/0000:80:01.0/information", "Model: \t\t A card\nDevice Minor: \t 3\n")

	for _, tc := range []struct {
		path         string
		block        bool
		major, minor uint32
		want         string
	}{
		{"/dev/dri/renderD128", false, 226, 128, "[1]"},
		{"/dev/ttyUSB0", false, 188, 0, "[]"},
		{"/dev/nvme0n1", true, 259, 0, "[1]"},
		{"/dev/nvme0n1", false, 259, 0, "[]"},
		{"/dev/null", false, 1, 3, "[]"},
		{"/dev/vfio/12", false, 511, 12, "[1]"},
		{"/dev/nvidia3", false, 195, 3, "[1]"},
		{"/dev/nvidia4", false, 195, 4, "[]"},
		{"/dev/none", false, 4, 4, "[]"},
	} {
		if got := fmt.Sprint(d.OfNode(tc.path, tc.block, unix.Mkdev(tc.major, tc.minor))); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.path, got, tc.want)
		}
	}
	if got := fmt.Sprint(d.OfInterface("eth5"), d.OfInterface("eth6")); got != "[1] []" {
		t.Errorf("network interfaces: %s", got)
	}
}
