package devnode

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/ocispec"
)

// Give makes the device nodes of a container whose pod has a user namespace. In there nobody can make one, and the host's own
// nodes belong to users that the namespace does not know, and may be elsewhere. So the nodes are made here, for the owners that the
// specification says, in dir, and the container mounts them; label is that of SELinux. What it may do with them is the device cgroup's matter, as ever.
func Give(dir, label string, sandbox *cri.PodSandboxConfig, spec *specs.Spec) error {
	uids, gids, ok := ocispec.UserNamespace(sandbox)
	if !ok || len(spec.Linux.Devices) == 0 {
		return nil
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	// The bundle may lie where devices do not work (nodev).
	if err := mount.Tmpfs(dir, mount.TmpfsOptions{Size: 1 << 20, Mode: 0o700, NoExec: true, Devices: true, Label: label}); err != nil {
		return err
	}
	var kept []specs.LinuxDevice
	for i, d := range spec.Linux.Devices {
		if slices.Contains(Default, d.Path) {
			kept = append(kept, d)
			continue
		}
		node := filepath.Join(dir, strconv.Itoa(i))
		if err := makeDevice(node, d, ownerOf(d.UID, uids), ownerOf(d.GID, gids)); err != nil {
			return fmt.Errorf("device %s: %w", d.Path, err)
		}
		spec.Mounts = append(spec.Mounts, specs.Mount{Destination: d.Path, Type: "bind", Source: node, Options: []string{"bind", "rprivate", "rw", "nosuid", "noexec"}})
	}
	spec.Linux.Devices = kept
	return nil
}

// Default are those that an OCI runtime gives to each container, whatever the specification says (runtime-spec, Default
// Devices). They are open to everybody on the host.
var Default = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

// ownerOf is the id on the host of an id in the user namespace; one that is not mapped belongs to the namespace's root.
func ownerOf(id *uint32, m *cri.IDMapping) int {
	if id == nil || *id >= m.GetLength() {
		return int(m.GetHostId())
	}
	return int(m.GetHostId() + *id)
}

func makeDevice(path string, d specs.LinuxDevice, uid, gid int) error {
	kinds := map[string]uint32{"c": unix.S_IFCHR, "u": unix.S_IFCHR, "b": unix.S_IFBLK, "p": unix.S_IFIFO}
	kind, ok := kinds[d.Type]
	if !ok {
		return fmt.Errorf("%q is no type of a device: %w", d.Type, errdefs.ErrInvalidArgument)
	}
	mode := os.FileMode(0o666)
	if d.FileMode != nil {
		mode = d.FileMode.Perm()
	}
	if err := unix.Mknod(path, kind, int(unix.Mkdev(uint32(d.Major), uint32(d.Minor)))); err != nil {
		return &os.PathError{Op: "mknod", Path: path, Err: err}
	}
	if err := os.Lchown(path, uid, gid); err != nil {
		return err
	}
	return os.Chmod(path, mode) // whatever the umask
}
