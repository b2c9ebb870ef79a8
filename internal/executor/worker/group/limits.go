//go:build cgo

package group

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// limitFiles are the files that an update may write, by controller; those of v2 under "".
var limitFiles = map[string][]string{
	"": {"cpu.idle", "cpu.weight", "cpu.max", "cpu.max.burst", "cpuset.cpus", "cpuset.mems", "memory.min", "memory.low", "memory.high",
		"memory.max", "memory.swap.max", "pids.max", "hugetlb.*.max", "hugetlb.*.rsvd.max"},
	"cpu": {"cpu.idle", "cpu.shares", "cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.cfs_burst_us"},
	// The limit comes before memsw, which may not be lower; restoreLimits tries in both orders.
	"memory":  {"memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.soft_limit_in_bytes", "memory.swappiness"},
	"cpuset":  {"cpuset.cpus", "cpuset.mems"},
	"pids":    {"pids.max"},
	"hugetlb": {"hugetlb.*.limit_in_bytes", "hugetlb.*.rsvd.limit_in_bytes"},
}

// Limits are values of cgroup files, by path.
type Limits map[string]string

// readLimits reads all values that an update may change: those of the known files, and of the v2 files in unified.
func readLimits(dirs map[string]string, unified map[string]string) (Limits, error) {
	all := Limits{}
	for controller, names := range limitFiles {
		dir := dirs[controller]
		if dir == "" {
			continue
		}
		for _, name := range names {
			paths, err := filepath.Glob(filepath.Join(dir, name))
			if err != nil {
				return nil, err
			}
			for _, path := range paths {
				if err := all.read(path); err != nil {
					return nil, err
				}
			}
		}
	}
	for key := range unified {
		path := filepath.Join(dirs[""], key)
		if err := all.read(path); err != nil {
			return nil, fmt.Errorf("%w: unified: %w", errdefs.ErrInvalidArgument, err)
		}
		if value := all[path]; strings.Contains(value, "\n") || value == "" && !strings.HasPrefix(key, "cpuset.") {
			return nil, fmt.Errorf("%w: unified: %s has a value for each of several devices or keys, which could not be taken back", errdefs.ErrInvalidArgument, key)
		}
	}
	return all, nil
}

func (l Limits) read(path string) error {
	raw, err := os.ReadFile(path)
	if errors.Is(err, unix.EOPNOTSUPP) { // there, and not in use
		return nil
	}
	if err != nil {
		return err
	}
	l[path] = strings.TrimSpace(string(raw))
	return nil
}

// restoreRounds bounds how often the values are gone through: some can be set only after others.
const restoreRounds = 3

// restoreLimits writes back what is different now. A cgroup that is gone needs nothing.
func restoreLimits(old Limits) error {
	paths := slices.Sorted(maps.Keys(old))
	var errs []error
	for range restoreRounds {
		errs = nil
		for _, path := range paths {
			raw, err := os.ReadFile(path)
			switch {
			case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV):
				continue
			case err == nil && strings.TrimSpace(string(raw)) == old[path]:
				continue
			case err == nil:
				err = os.WriteFile(path, []byte(old[path]+"\n"), 0)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("restore %q: %w", old[path], err))
			}
		}
		if len(errs) == 0 {
			return nil
		}
		slices.Reverse(paths)
	}
	return errors.Join(errs...)
}
