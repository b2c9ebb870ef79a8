package keeper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
)

// joinCgroup moves this process to the cgroup at path in every hierarchy, v1 or v2. leave moves it back to where it came
// from and removes the cgroup.
func joinCgroup(path string) (leave func() error, err error) {
	before, err := cgroups.ParseCgroupFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	m, err := manager.New(&cgroups.Cgroup{Path: path, Resources: &cgroups.Resources{SkipDevices: true}})
	if err != nil {
		return nil, err
	}
	if err := m.Apply(os.Getpid()); err != nil {
		return nil, err
	}
	return func() error {
		var errs []error
		for controller, dir := range m.GetPaths() {
			mount := strings.TrimSuffix(dir, path)
			old := before[controller]
			if old == path { // this process was born here; only the root always takes processes in
				old = "/"
			}
			if err := cgroups.WriteCgroupProc(filepath.Join(mount, old), os.Getpid()); err != nil {
				errs = append(errs, fmt.Errorf("go back to %s: %w", old, err))
			}
		}
		return errors.Join(append(errs, m.Destroy())...)
	}, nil
}
