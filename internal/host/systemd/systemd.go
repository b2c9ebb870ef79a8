// Package systemd makes cgroups by way of the host's systemd, for who wants to see pods and containers among its units: a pod is a
// slice, a container a scope. It needs cgroup v2.
//
// systemd owns what it makes: it writes the files of a unit's cgroup again whenever it likes (daemon-reload), from the properties that
// it knows, and removes the cgroup of a scope when the last process has ended. What is below a scope it leaves alone, because the
// scope is delegated (https://systemd.io/CGROUP_DELEGATION). So the processes of a container are in a cgroup below its scope, the leaf, which
// is limited as any other container's is, with device rules and all; the scope has the same limits as properties. A slice has
// its limits as properties, and what systemd has no property for as files.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	sdbus "github.com/coreos/go-systemd/v22/dbus"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs2"

	"monopod.dev/monopod/internal/host/cgroup/place"
)

// Driver is the name of this cgroup driver in a configuration.
const Driver = "systemd"

// Check is an error that says what is missing, where this host's systemd cannot be asked for cgroups. It returns systemd's version.
func Check(ctx context.Context) (version string, err error) {
	const instead = "or use the cgroup driver cgroupfs (runtime.cgroupDriver, --cgroup-driver)"
	if info, err := os.Lstat("/run/systemd/system"); err != nil || !info.IsDir() {
		return "", fmt.Errorf("the cgroup driver systemd needs systemd as the machine's first process, and there is no /run/systemd/system: start monopod where systemd runs, %s: %w",
			instead, errdefs.ErrFailedPrecondition)
	}
	if !cgroups.IsCgroup2UnifiedMode() {
		return "", fmt.Errorf("the cgroup driver systemd needs cgroup v2, and this host has v1 or a hybrid: boot with systemd.unified_cgroup_hierarchy=1, %s: %w",
			instead, errdefs.ErrFailedPrecondition)
	}
	conn, err := sdbus.NewWithContext(ctx)
	if err == nil {
		defer conn.Close()
		version, err = conn.GetManagerProperty("Version")
	}
	if err != nil {
		return "", fmt.Errorf("the cgroup driver systemd: systemd answers neither on the system bus (/run/dbus/system_bus_socket) nor at /run/systemd/private: let monopod see one of them, %s: %w: %w",
			instead, err, errdefs.ErrFailedPrecondition)
	}
	return strings.Trim(version, `"`), nil
}

// slicePath is the cgroup of a slice: that of a-b.slice is /a.slice/a-b.slice.
func slicePath(name string) (string, error) {
	slice, at, err := place.Slice(name)
	if err == nil && slice != name {
		err = errors.New("it is a path")
	}
	if err != nil {
		return "", fmt.Errorf("slice %q: %w: %w", name, err, errdefs.ErrInvalidArgument)
	}
	return at, nil
}

// dir is where a cgroup is mounted.
func dir(cgroup string) string { return filepath.Join(fs2.UnifiedMountpoint, cgroup) }

// setProperties sets properties of a unit until it ends, for those that the library cannot.
func setProperties(ctx context.Context, unit string, properties ...sdbus.Property) error {
	conn, err := sdbus.NewWithContext(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.SetUnitPropertiesContext(ctx, unit, true, properties...)
}

// parent is the slice that another one is in.
func parent(slice string) string {
	name := strings.TrimSuffix(slice, ".slice")
	if i := strings.LastIndexByte(name, '-'); i > 0 {
		return name[:i] + ".slice"
	}
	return "-.slice"
}

// IsScope says that a cgroup is the leaf of a scope.
func IsScope(cgroup string) bool {
	return path.Base(cgroup) == leaf && strings.HasSuffix(path.Dir(cgroup), scopeSuffix)
}
