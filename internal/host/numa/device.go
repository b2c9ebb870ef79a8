package numa

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Devices tells to which NUMA nodes devices are near: sysfs says it of each PCI device (Documentation/ABI/testing/sysfs-bus-pci, numa_node).
// Tests give it other roots.
type Devices struct {
	Sys  string // /sys
	Proc string // /proc
}

// DevicesOfThisHost are those of the host that we run on.
func DevicesOfThisHost() Devices { return Devices{Sys: "/sys", Proc: "/proc"} }

// OfNode returns the NUMA nodes of a device node with this number; block says that it is a block device. None: it is near to none, or nothing is
// known of it.
func (d Devices) OfNode(path string, block bool, rdev uint64) []int {
	kind := "char"
	if block {
		kind = "block"
	}
	dir, err := filepath.EvalSymlinks(filepath.Join(d.Sys, "dev", kind, fmt.Sprintf("%d:%d", unix.Major(rdev), unix.Minor(rdev))))
	switch {
	case err == nil && strings.HasPrefix(path, vfioGroups): // the group is a virtual device
		return d.ofGroup(filepath.Base(path))
	case err == nil:
		return d.above(dir)
	case unix.Major(rdev) == nvidiaMajor:
		return d.ofNVIDIA(unix.Minor(rdev))
	}
	return nil
}

// OfInterface returns the NUMA nodes of a network interface of our network namespace.
func (d Devices) OfInterface(name string) []int {
	dir, err := filepath.EvalSymlinks(filepath.Join(d.Sys, "class", "net", name))
	if err != nil {
		return nil
	}
	return d.above(dir)
}

// above looks at a device of sysfs and at those that it is a part of.
func (d Devices) above(dir string) []int {
	for devices := filepath.Join(d.Sys, "devices"); strings.HasPrefix(dir, devices+"/"); dir = filepath.Dir(dir) {
		if raw, err := os.ReadFile(filepath.Join(dir, "numa_node")); err == nil {
			return parseNode(raw)
		}
	}
	return nil
}

// parseNode reads a numa_node, which is negative where the firmware does not say.
func parseNode(raw []byte) []int {
	n, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil || n < 0 {
		return nil
	}
	return []int{n}
}

const vfioGroups = "/dev/vfio/"

// ofGroup is for VFIO, whose nodes are groups of devices.
func (d Devices) ofGroup(group string) []int {
	members, err := filepath.Glob(filepath.Join(d.Sys, "kernel", "iommu_groups", group, "devices", "*"))
	if err != nil {
		return nil
	}
	var all []int
	for _, m := range members {
		if raw, err := os.ReadFile(filepath.Join(m, "numa_node")); err == nil {
			all = append(all, parseNode(raw)...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// nvidiaMajor is that of NVIDIA's driver, whose devices sysfs does not list by their numbers.
const nvidiaMajor = 195

// ofNVIDIA finds the PCI device of a GPU's minor number.
func (d Devices) ofNVIDIA(minor uint32) []int {
	infos, err := filepath.Glob(filepath.Join(d.Proc, "driver", "nvidia", "gpus", "*", "information"))
	if err != nil {
		return nil
	}
	for _, info := range infos {
		raw, err := os.ReadFile(info)
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
			key, value, _ := strings.Cut(lines.Text(), ":")
			if n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32); strings.TrimSpace(key) == "Device Minor" && err == nil && uint32(n) == minor {
				address := filepath.Base(filepath.Dir(info))
				if raw, err := os.ReadFile(filepath.Join(d.Sys, "bus", "pci", "devices", address, "numa_node")); err == nil {
					return parseNode(raw)
				}
			}
		}
	}
	return nil
}
