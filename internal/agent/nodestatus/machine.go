package nodestatus

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod.dev/monopod/internal/host/kernel"
	"monopod.dev/monopod/internal/host/usage"
)

// Machine is what does not change while the machine is up.
type Machine struct {
	Resources v1.ResourceList
	Info      v1.NodeSystemInfo
}

// ReadMachine asks the kernel and the distribution's files. dataDir is on the file system whose size is the ephemeral
// storage.
func ReadMachine(dataDir string) (Machine, error) {
	has, err := usage.Read()
	if err != nil {
		return Machine{}, err
	}
	disk, err := usage.DiskOf(dataDir)
	if err != nil {
		return Machine{}, err
	}
	m := Machine{Resources: v1.ResourceList{
		v1.ResourceCPU:              *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		v1.ResourceMemory:           *resource.NewQuantity(int64(has.Memory.Total), resource.BinarySI),
		v1.ResourceEphemeralStorage: *resource.NewQuantity(int64(disk.Capacity), resource.BinarySI),
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
	if swap := int64(has.Swap.Total); swap > 0 {
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
