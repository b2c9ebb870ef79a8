package sandbox

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/ocispec"
)

func idMap(m *cri.IDMapping) ns.IDMap {
	return ns.IDMap{ContainerID: m.GetContainerId(), HostID: m.GetHostId(), Length: m.GetLength()}
}

// HostRoot tells which user and group of the host the root of the sandbox's user namespace is: 0 and 0 without one.
func (r *Record) HostRoot() (uid, gid uint32) {
	u, g, ok := ocispec.UserNamespace(r.Config())
	if !ok {
		return 0, 0
	}
	return u.GetHostId(), g.GetHostId()
}

// HasUserNamespace says that the sandbox has a user namespace of its own, to which its other namespaces belong.
func (r *Record) HasUserNamespace() bool {
	_, _, ok := ocispec.UserNamespace(r.Config())
	return ok
}

// checkReachable: a container of a pod with a user namespace mounts its root file system as the pod's root, who is an ordinary user
// of the host and must be let through to it.
func checkReachable(dir string) error {
	for dir = filepath.Clean(dir); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		if err == nil && info.Mode()&0o001 == 0 {
			return fmt.Errorf("namespace_options.userns_options: the users of a user namespace cannot pass the directory %s (mode %04o): let them (chmod o+x), or use another run directory: %w",
				dir, info.Mode().Perm(), errdefs.ErrFailedPrecondition)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}
