package cdi

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/devices/answer"
)

// DefaultSharedNodes are the host nodes that belong to no device of its own, because every device of their driver needs them, or because
// each who opens one gets something new. What they have in common does not make two devices one. A GPU's own nodes (/dev/nvidia0,
// /dev/dri/card0, /dev/dri/renderD128) are not among them, nor are those of its partitions.
var DefaultSharedNodes = []string{
	// What each container has (runtime-spec, Default Devices).
	"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty",
	// NVIDIA's control nodes; the GPUs are /dev/nvidia<N>.
	"/dev/nvidiactl", "/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-nvswitchctl", "/dev/nvidia-nvlink",
	// GPUDirect storage and copies: one driver for all GPUs.
	"/dev/nvidia-fs*", "/dev/gdrdrv",
	// AMD's compute node; the GPUs are /dev/dri/renderD<N>.
	"/dev/kfd",
	// The one node of all GPUs of a Windows host.
	"/dev/dxg",
	// Huawei Ascend's managers; the accelerators are /dev/davinci<N>.
	"/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc",
	// RDMA's connection manager; the adapters are /dev/infiniband/uverbs<N>.
	"/dev/infiniband/rdma_cm",
	// VFIO's container; the groups are /dev/vfio/<N>.
	"/dev/vfio/vfio", "/dev/iommu",
	// Each opener gets a machine, an interface, a file system or an enclave of its own.
	"/dev/kvm", "/dev/vhost-net", "/dev/vhost-vsock", "/dev/net/tun", "/dev/fuse", "/dev/sgx_enclave", "/dev/sgx_provision",
}

// identifier finds out which host nodes are a device's own.
type identifier struct {
	shared patterns
	// What was resolved already: devices share directories, and several are about one node.
	dirs, files map[string]string
}

func newIdentifier(shared patterns) *identifier {
	return &identifier{shared: shared, dirs: map[string]string{}, files: map[string]string{}}
}

// nodes are the host nodes of an entry's own edits, sorted, each once and by its real path, without those that are shared. The edits of
// the whole file are not among them: they come with each of its devices.
func (i *identifier) nodes(d *cdispec.Device) []string { return i.which(d, false) }

// sharedNodes are the others, likewise.
func (i *identifier) sharedNodes(d *cdispec.Device) []string { return i.which(d, true) }

func (i *identifier) which(d *cdispec.Device, shared bool) []string {
	var nodes []string
	for _, n := range d.Edits.DeviceNodes {
		p := cdispec.HostPath(n)
		real := i.resolve(p)
		if shared == (i.shared.match(p) || i.shared.match(real)) {
			nodes = append(nodes, real)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// Identify returns the host nodes behind an answer that are some device's own: those of its CDI devices, also of kinds that are no
// resources and of those that only its annotations name, and its device nodes.
func (s *Source) Identify(a answer.Answer) []string {
	id, c := newIdentifier(s.shared), s.catalog.Load()
	var nodes []string
	add := func(name string) {
		if d, ok := c.byName[name]; ok {
			nodes = append(nodes, id.nodes(d)...)
		}
	}
	for _, name := range a.CDIDevices {
		add(name)
	}
	for _, name := range cdispec.Annotated(a.Annotations) {
		add(name)
	}
	for _, n := range a.Nodes {
		if real := id.resolve(n.HostPath); !s.shared.match(n.HostPath) && !s.shared.match(real) {
			nodes = append(nodes, real)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// resolve follows the symbolic links of a path as far as it exists, so that a node has the same name before it comes and after it went.
func (i *identifier) resolve(p string) string {
	real, ok := i.files[p]
	if !ok {
		real = i.follow(filepath.Clean(p))
		i.files[p] = real
	}
	return real
}

func (i *identifier) follow(p string) string {
	for range maxLinks {
		dir, base := filepath.Split(p)
		real := filepath.Join(i.resolveDir(dir), base)
		target, err := os.Readlink(real)
		if err != nil {
			return real
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(real), target)
		}
		p = filepath.Clean(target)
	}
	return p // a loop of links, which is no node in any case
}

// maxLinks is what Linux allows in one look-up.
const maxLinks = 40

func (i *identifier) resolveDir(dir string) string {
	dir = filepath.Clean(dir)
	real, ok := i.dirs[dir]
	if ok {
		return real
	}
	real, err := filepath.EvalSymlinks(dir)
	switch {
	case err == nil:
	case dir == filepath.Dir(dir):
		real = dir
	default: // what exists of it
		real = filepath.Join(i.resolveDir(filepath.Dir(dir)), filepath.Base(dir))
	}
	i.dirs[dir] = real
	return real
}

// sameHardware is the key under which names are one device: those of one file with the very same edits, device nodes or network
// interfaces among them. Empty: the device has no hardware of which it could be another name.
func sameHardware(d *cdispec.Device) string {
	if len(d.Edits.DeviceNodes)+len(d.Edits.NetDevices) == 0 {
		return ""
	}
	edits, err := json.Marshal(d.Edits)
	if err != nil {
		return ""
	}
	var key strings.Builder
	key.WriteString(d.File.Path)
	key.WriteByte(0)
	key.Write(edits)
	return key.String()
}
