package nodestatus

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod.dev/monopod/internal/host/kernel"
)

// Machine is what does not change while the machine is up.
type Machine struct {
	Resources v1.ResourceList
	Info      v1.NodeSystemInfo
}

// ReadMachine asks the kernel and the distribution's files. dataDir is on the file system whose size is the ephemeral
// storage.
func ReadMachine(dataDir string) (Machine, error) {
	memory, err := memInfo("MemTotal")
	if err != nil {
		return Machine{}, err
	}
	disk, err := readDisk(dataDir)
	if err != nil {
		return Machine{}, err
	}
	m := Machine{Resources: v1.ResourceList{
		v1.ResourceCPU:              *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		v1.ResourceMemory:           *resource.NewQuantity(memory, resource.BinarySI),
		v1.ResourceEphemeralStorage: *resource.NewQuantity(disk.size, resource.BinarySI),
	}}
	if err := addHugepages(m.Resources); err != nil {
		return Machine{}, err
	}
	runs, err := kernel.Release()
	if err != nil {
		return Machine{}, err
	}
	m.Info = v1.NodeSystemInfo{
		MachineID:       firstLine("/etc/machine-id"),
		SystemUUID:      firstLine("/sys/class/dmi/id/product_uuid"),
		BootID:          firstLine("/proc/sys/kernel/random/boot_id"),
		KernelVersion:   runs,
		OSImage:         osImage(),
		OperatingSystem: runtime.GOOS,
		Architecture:    runtime.GOARCH,
	}
	swap, err := memInfo("SwapTotal")
	if err != nil {
		return Machine{}, err
	}
	if swap > 0 {
		m.Info.Swap = &v1.NodeSwapStatus{Capacity: &swap}
	}
	return m, nil
}

// canSpare refuses to reserve more than there is.
func (m Machine) canSpare(reserved v1.ResourceList) error {
	var errs []error
	for name, amount := range reserved {
		if have := m.Resources[name]; amount.Cmp(have) > 0 {
			errs = append(errs, fmt.Errorf("%s of %s is reserved (agent.systemReserved and agent.kubeReserved), and the machine has %s: reserve less", amount.String(), name, have.String()))
		}
	}
	return errors.Join(errs...)
}

// memInfo is one value of /proc/meminfo, in bytes.
func memInfo(key string) (int64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if fields := strings.Fields(s.Text()); len(fields) >= 2 && fields[0] == key+":" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/meminfo has no %s", key)
}

// disk is the state of a file system: sizes in bytes, and inodes (0 where it has no fixed number of them).
type disk struct{ size, free, inodes, inodesFree int64 }

func readDisk(path string) (disk, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return disk{}, fmt.Errorf("statfs %s: %w", path, err)
	}
	return disk{
		size: int64(fs.Blocks) * fs.Bsize, free: int64(fs.Bavail) * fs.Bsize, inodes: int64(fs.Files), inodesFree: int64(fs.Ffree),
	}, nil
}

// addHugepages adds the page sizes that the kernel knows.
func addHugepages(r v1.ResourceList) error {
	dirs, err := filepath.Glob("/sys/kernel/mm/hugepages/hugepages-*kB")
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		size := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(dir), "hugepages-"), "kB")
		kib, err := strconv.ParseInt(size, 10, 64)
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		pages, err := strconv.ParseInt(firstLine(filepath.Join(dir, "nr_hugepages")), 10, 64)
		if err != nil {
			return fmt.Errorf("%s/nr_hugepages: %w", dir, err)
		}
		name := v1.ResourceHugePagesPrefix + resource.NewQuantity(kib<<10, resource.BinarySI).String()
		r[v1.ResourceName(name)] = *resource.NewQuantity(pages*kib<<10, resource.BinarySI)
	}
	return nil
}

// firstLine is the first line of a file that may be missing.
func firstLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line)
}

func osImage() string {
	data, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "Linux"
	}
	for line := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			return strings.Trim(v, `"'`)
		}
	}
	return "Linux"
}

// pressure is what the machine is short of now.
type pressure struct {
	memory, disk, pids string // a message each; empty: no shortage
}

// Shortages begin where an evicting kubelet's do by default, but a large disk is not short while it has a gibibyte left.
const (
	memoryFloor = 100 << 20
	diskFloor   = 1 << 30
)

func readPressure(dataDir string) (pressure, error) {
	var p pressure
	memory, err := memInfo("MemAvailable")
	if err != nil {
		return p, err
	}
	if memory < memoryFloor {
		p.memory = fmt.Sprintf("%d MiB of memory are available, fewer than %d", memory>>20, memoryFloor>>20)
	}
	d, err := readDisk(dataDir)
	if err != nil {
		return p, err
	}
	switch {
	case d.free < min(d.size/10, diskFloor):
		p.disk = fmt.Sprintf("%d MiB are free on the file system of %s", d.free>>20, dataDir)
	case d.inodes > 0 && d.inodesFree < d.inodes/20:
		p.disk = fmt.Sprintf("%d of %d inodes are free on the file system of %s", d.inodesFree, d.inodes, dataDir)
	}
	p.pids = pidPressure(firstLine("/proc/loadavg"), firstLine("/proc/sys/kernel/pid_max"))
	return p, nil
}

// pidPressure reads the number of threads out of /proc/loadavg: "0.20 0.18 0.12 1/80 11206".
func pidPressure(loadavg, pidMax string) string {
	fields := strings.Fields(loadavg)
	limit, err := strconv.ParseInt(pidMax, 10, 64)
	if err != nil || len(fields) < 4 {
		return ""
	}
	_, total, _ := strings.Cut(fields[3], "/")
	if threads, err := strconv.ParseInt(total, 10, 64); err == nil && threads > limit*95/100 {
		return fmt.Sprintf("%d threads are running, and the kernel has %d process ids", threads, limit)
	}
	return ""
}
