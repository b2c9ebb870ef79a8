// Package usage tells what the whole machine has used: processors, memory, swap, threads and network interfaces, as the kernel
// counts them in /proc; and how full file systems are.
//
// Numbers are of the host also where a cgroup hides a part of it. Nothing is remembered between two calls: rates are for the caller to make.
package usage

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Machine is what the machine has used until At.
type Machine struct {
	At, Boot time.Time
	// CPU is the time that all processors were at work, in nanoseconds of one: user, system, interrupts. Time that a hypervisor took is not in it.
	CPU uint64
	// Memory and Swap are in bytes.
	Memory Memory
	Swap   Swap
	// PageFaults are all, MajorPageFaults those that read from a disk.
	PageFaults, MajorPageFaults uint64
	// Threads is how many there are, MaxThreads how many the kernel has numbers for.
	Threads, MaxThreads uint64
}

// Memory is in bytes. Used is all that is not free, Available what the kernel could give without swapping, InactiveFile the page cache that was not used lately, Anonymous what no file is behind.
type Memory struct{ Total, Used, Available, InactiveFile, Anonymous uint64 }

// WorkingSet is the memory that cannot be taken back at once.
func (m Memory) WorkingSet() uint64 { return m.Used - min(m.Used, m.InactiveFile) }

// Swap is in bytes.
type Swap struct{ Total, Free uint64 }

// Read asks the kernel. What is missing is an error that names the file.
func Read() (Machine, error) {
	m := Machine{}
	for _, part := range []struct {
		file  string
		parse func(raw string, m *Machine) error
	}{
		{"/proc/stat", parseStat}, {"/proc/meminfo", parseMeminfo}, {"/proc/vmstat", parseVMStat},
		{"/proc/loadavg", parseLoad}, {"/proc/sys/kernel/pid_max", parsePIDMax},
	} {
		raw, err := os.ReadFile(part.file)
		if err != nil {
			return Machine{}, err
		}
		if err := part.parse(string(raw), &m); err != nil {
			return Machine{}, fmt.Errorf("%s: %w", part.file, err)
		}
		if m.At.IsZero() { // that of the processors, which rates are made of
			m.At = time.Now()
		}
	}
	return m, nil
}

// Interface is a network interface, with what it has received and sent since it was made.
type Interface struct {
	Name                                    string
	RxBytes, RxPackets, RxErrors, RxDropped uint64
	TxBytes, TxPackets, TxErrors, TxDropped uint64
}

// Interfaces are those of the host's network, but loopback and the ends of pods' pairs. The one that leads elsewhere by default is the first.
func Interfaces() ([]Interface, error) {
	raw, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		return nil, err
	}
	all := parseInterfaces(string(raw))
	if routes, err := os.ReadFile("/proc/net/route"); err == nil {
		first(all, defaultRoute(string(routes)))
	}
	return all, nil
}

// Disk is how full a file system is, in bytes and inodes. What is reserved for root is not available.
type Disk struct{ Capacity, Available, Inodes, InodesFree uint64 }

// Used is what is in use of it, with what is reserved.
func (d Disk) Used() uint64 { return d.Capacity - min(d.Capacity, d.Available) }

// DiskOf asks the file system that a path is on.
func DiskOf(path string) (Disk, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return Disk{}, fmt.Errorf("statfs %s: %w", path, err)
	}
	size := uint64(fs.Bsize)
	return Disk{Capacity: fs.Blocks * size, Available: fs.Bavail * size, Inodes: fs.Files, InodesFree: fs.Ffree}, nil
}
