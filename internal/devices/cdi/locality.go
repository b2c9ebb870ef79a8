package cdi

import (
	"slices"

	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"monopod.dev/monopod/internal/host/numa"
)

// locality finds out to which NUMA nodes devices are near. What it has found of a device node it keeps as long as the node has the same number:
// there may be thousands, and they are looked at whenever one comes or goes. It is for one goroutine.
type locality struct {
	host  numa.Devices
	known map[string]nearness // by the real path of the device node
}

type nearness struct {
	rdev uint64
	to   []int
}

func newLocality(host numa.Devices) *locality {
	return &locality{host: host, known: map[string]nearness{}}
}

// of are the NUMA nodes of a device, by its own nodes, in their real paths, and its network interfaces; sorted.
func (l *locality) of(nodes []string, edits *specs.ContainerEdits) []int {
	var all []int
	for _, path := range nodes {
		all = append(all, l.ofNode(path)...)
	}
	for _, n := range edits.NetDevices {
		all = append(all, l.host.OfInterface(n.HostInterfaceName)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (l *locality) ofNode(path string) []int {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		delete(l.known, path) // what comes in its place may be elsewhere
		return nil
	}
	mode := st.Mode & unix.S_IFMT
	if mode != unix.S_IFCHR && mode != unix.S_IFBLK {
		return nil
	}
	known, ok := l.known[path]
	if !ok || known.rdev != st.Rdev {
		known = nearness{st.Rdev, l.host.OfNode(path, mode == unix.S_IFBLK, st.Rdev)}
		l.known[path] = known
	}
	return known.to
}
