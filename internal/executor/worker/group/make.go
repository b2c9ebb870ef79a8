//go:build cgo

package group

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"
)

// Roots are the directories below which cgroups of version 1 lie, by controller, as libcontainer finds them. It looks for them
// anew for each container, at ten times three system calls.
type Roots struct {
	once  sync.Once
	roots map[string]string // nil: they could not be found
}

func (r *Roots) get() map[string]string {
	r.once.Do(func() {
		const probe = "/monopod-probe" // it is not made
		cm, err := manager.New(&cgroups.Cgroup{Path: probe, Resources: &cgroups.Resources{}})
		if err != nil {
			return
		}
		roots := map[string]string{}
		for controller, dir := range cm.GetPaths() {
			root, ok := strings.CutSuffix(dir, probe)
			if !ok {
				return
			}
			roots[controller] = root
		}
		r.roots = roots
	})
	return r.roots
}

// Manager is the manager of a container's cgroups.
func (r *Roots) Manager(c *cgroups.Cgroup) (cgroups.Manager, error) {
	if c.Systemd || cgroups.IsCgroup2UnifiedMode() || !filepath.IsAbs(c.Path) || len(r.get()) == 0 {
		return manager.New(c)
	}
	paths := map[string]string{}
	for controller, root := range r.get() {
		paths[controller] = filepath.Join(root, c.Path)
	}
	return manager.NewWithPaths(c, paths)
}

// Make makes the directories of a container's cgroups. libcontainer does it with care for cases that do not happen to a container
// of a pod, whose cgroup is there: it goes through all parents in each hierarchy.
func Make(cm cgroups.Manager, c *cgroups.Cgroup) error {
	paths, r := cm.GetPaths(), c.Resources
	if c.Systemd || cgroups.IsCgroup2UnifiedMode() || r.CpuRtPeriod != 0 || r.CpuRtRuntime != 0 || r.CpusetCpus != "" || r.CpusetMems != "" {
		return cm.Apply(-1)
	}
	seen := make(map[string]bool, len(paths))
	for _, dir := range paths {
		if dir == "" || seen[dir] {
			continue
		}
		seen[dir] = true
		err := unix.Mkdir(dir, 0o755)
		if err != nil && !(errors.Is(err, unix.EEXIST) && dir != paths["cpuset"]) {
			return cm.Apply(-1) // it makes the parents, and knows which hierarchies may be missing
		}
	}
	if dir := paths["cpuset"]; dir != "" && !inheritCPUSet(dir) {
		return cm.Apply(-1)
	}
	return nil
}

// inheritCPUSet gives a new cpuset of version 1 its parent's processors and memory nodes, unless the kernel has: without them it lets no
// process in.
func inheritCPUSet(dir string) bool {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		if own, err := os.ReadFile(filepath.Join(dir, file)); err != nil {
			return false
		} else if len(strings.TrimSpace(string(own))) > 0 {
			continue
		}
		value, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
		if err != nil || len(strings.TrimSpace(string(value))) == 0 {
			return false
		}
		if err := cgroups.WriteFile(dir, file, string(value)); err != nil {
			return false
		}
	}
	return true
}

// Apply sets the resources of cgroups, for the first time or again. The library's managers share what they find out, at the first use, of the files that
// this kernel has, and find it out without a lock: so the first use is alone.
func Apply(cm cgroups.Manager, r *cgroups.Resources) error {
	if !found.done.Load() {
		found.mu.Lock()
		defer found.mu.Unlock()
	}
	err := cm.Set(r)
	if err == nil {
		found.done.Store(true)
	}
	return err
}

var found struct {
	mu   sync.Mutex
	done atomic.Bool
}

// Empty refuses a cgroup in which processes are: they would be killed with the container, and with what is left of it when it
// could not be made. So it is asked before there is a record of the container.
func Empty(cm cgroups.Manager) error {
	for _, path := range cm.GetPaths() { // on v1 somebody may use one hierarchy and not the others
		pids, err := cgroups.GetAllPids(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return fmt.Errorf("processes of the cgroup %s: %w", path, err)
		case len(pids) > 0:
			return fmt.Errorf("%w: there are processes in the container's cgroup %s: %v", errdefs.ErrFailedPrecondition, path, pids)
		}
	}
	return nil
}
