//go:build cgo

package group

import (
	"fmt"
	"os"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"monopod.dev/monopod/internal/host/cgroup"
)

// Where the controller hugetlb is that of a v2 hierarchy beside those of v1, neither libcontainer nor an OCI runtime finds it: then
// the worker limits huge pages itself, in the cgroup that they make for the container in that hierarchy, too.

// Hugepages limits the huge pages of containers on a host.
type Hugepages struct{ Host *cgroup.Host }

// Take takes the limits out of the resources of a container, if they are the worker's to set.
func (h Hugepages) Take(r *specs.LinuxResources) (limits []specs.LinuxHugepageLimit) {
	if r == nil || !h.Host.SplitHugetlb() {
		return nil
	}
	limits, r.HugepageLimits = r.HugepageLimits, nil
	return limits
}

// Prepare makes the files of the limits appear in a container's cgroup, which is made if it is not there.
func (h Hugepages) Prepare(dirs map[string]string) error {
	if err := os.MkdirAll(dirs[""], 0o755); err != nil {
		return err
	}
	return h.Host.EnableHugetlb(h.unifiedPath(dirs))
}

// Limit writes limits, all or none.
func (h Hugepages) Limit(dirs map[string]string, limits []specs.LinuxHugepageLimit) error {
	if len(limits) == 0 {
		return nil
	}
	if err := h.Prepare(dirs); err != nil {
		return err
	}
	pages := map[string]uint64{}
	for _, l := range limits {
		pages[l.Pagesize] = l.Limit
	}
	if err := h.Host.Set(h.unifiedPath(dirs), cgroup.Resources{Hugepages: pages}); err != nil {
		return fmt.Errorf("huge pages: %w", err)
	}
	return nil
}

// unifiedPath is the container's cgroup in the v2 hierarchy.
func (h Hugepages) unifiedPath(dirs map[string]string) string {
	return strings.TrimPrefix(dirs[""], h.Host.Paths("/")[""])
}

// LimitAgain writes all limits of a container whose resources an OCI runtime has just updated, where the runtime has the
// controller: runc's update knows no huge pages, and writes those again with which the container was made.
func (h Hugepages) LimitAgain(dirs map[string]string, limits []specs.LinuxHugepageLimit) error {
	if len(limits) == 0 || h.Host.SplitHugetlb() {
		return nil
	}
	path := h.unifiedPath(dirs)
	if dir := dirs["hugetlb"]; dir != "" {
		path = strings.TrimPrefix(dir, h.Host.Paths("/")["hugetlb"])
	}
	pages := map[string]uint64{}
	for _, l := range limits {
		pages[l.Pagesize] = l.Limit
	}
	if err := h.Host.Set(path, cgroup.Resources{Hugepages: pages}); err != nil {
		return fmt.Errorf("huge pages: %w", err)
	}
	return nil
}
