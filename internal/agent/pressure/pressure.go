// Package pressure says what the machine is short of: memory, room on the disk that pods' data are on, process ids.
//
// What is measured is a value, and what follows from it is decided from that alone, so that whoever tells of a shortage (the Node's conditions) and whoever is to
// act on one decide on the same. It evicts nobody; what one pod may take of the disk is package eviction's.
package pressure

import (
	"fmt"

	"monopod.dev/monopod/internal/host/usage"
)

// Measured is what shortages are decided from.
type Measured struct {
	// Memory is the machine's, in bytes.
	Memory usage.Memory
	// Threads is how many there are, MaxThreads how many the kernel has numbers for; 0: it is not known.
	Threads, MaxThreads uint64
	// Disk is the file system that Dir is on.
	Disk usage.Disk
	Dir  string
}

// Measure asks the kernel. dir is on the file system of pods' data.
func Measure(dir string) (Measured, error) {
	m, err := usage.Read()
	if err != nil {
		return Measured{}, err
	}
	disk, err := usage.DiskOf(dir)
	if err != nil {
		return Measured{}, err
	}
	return Measured{Memory: m.Memory, Threads: m.Threads, MaxThreads: m.MaxThreads, Disk: disk, Dir: dir}, nil
}

// Shortages begin where an evicting kubelet's do by default, but a large disk is not short while it has a gibibyte left.
const (
	memoryFloor = 100 << 20
	diskFloor   = 1 << 30
)

// Shortages are what the machine is short of, a message each; empty: there is enough.
type Shortages struct{ Memory, Disk, PIDs string }

// Shortages decides.
func (m *Measured) Shortages() (s Shortages) {
	if m.Memory.Available < memoryFloor {
		s.Memory = fmt.Sprintf("%d MiB of memory are available, fewer than %d", m.Memory.Available>>20, memoryFloor>>20)
	}
	switch d := m.Disk; {
	case d.Available < min(d.Capacity/10, diskFloor):
		s.Disk = fmt.Sprintf("%d MiB are free on the file system of %s", d.Available>>20, m.Dir)
	case d.Inodes > 0 && d.InodesFree < d.Inodes/20: // some file systems have no fixed number
		s.Disk = fmt.Sprintf("%d of %d inodes are free on the file system of %s", d.InodesFree, d.Inodes, m.Dir)
	}
	if m.MaxThreads > 0 && m.Threads > m.MaxThreads*95/100 {
		s.PIDs = fmt.Sprintf("%d threads are running, and the kernel has %d process ids", m.Threads, m.MaxThreads)
	}
	return s
}
