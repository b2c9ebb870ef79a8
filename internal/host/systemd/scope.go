package systemd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	sdbus "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
	"github.com/opencontainers/cgroups"
	libsystemd "github.com/opencontainers/cgroups/systemd"
	"golang.org/x/sys/unix"
)

const (
	scopeSuffix = ".scope"
	// scopePrefix begins the names of all scopes.
	scopePrefix = "monopod"
	// leaf is the cgroup below a scope in which the container's processes are, and seat the one of the process with which the scope is
	// made, later empty: in the scope itself there can be none, as soon as it has controllers for what is below it.
	leaf = "container"
	seat = "start"
)

// Scope is a container's unit: PREFIX-NAME.scope, in a slice.
type Scope struct{ Slice, Prefix, Name string }

// NewScope is the scope of a container.
func NewScope(slice, id string) Scope { return Scope{Slice: slice, Prefix: scopePrefix, Name: id} }

// String is SLICE:PREFIX:NAME, as OCI runtimes have it for a cgroupsPath.
func (s Scope) String() string { return s.Slice + ":" + s.Prefix + ":" + s.Name }

// ParseScope is the reverse of String. ok says that it is one at all, rather than the path of a cgroup.
func ParseScope(text string) (s Scope, ok bool, err error) {
	if strings.HasPrefix(text, "/") {
		return s, false, nil
	}
	parts := strings.Split(text, ":")
	if len(parts) != 3 || parts[1] == "" || parts[2] == "" || strings.ContainsAny(parts[1]+parts[2], "/\x00\n") || strings.HasSuffix(parts[2], ".slice") {
		return s, false, fmt.Errorf("%q is no scope (SLICE:PREFIX:NAME): %w", text, errdefs.ErrInvalidArgument)
	}
	s = Scope{Slice: parts[0], Prefix: parts[1], Name: parts[2]}
	if _, err := slicePath(s.Slice); err != nil {
		return s, false, err
	}
	return s, true, nil
}

// Unit is the name of the unit.
func (s Scope) Unit() string { return s.Prefix + "-" + s.Name + scopeSuffix }

// Path is the cgroup that is systemd's.
func (s Scope) Path() string {
	p, _ := slicePath(s.Slice) // which ParseScope, or who made the slice, has checked
	return path.Join(p, s.Unit())
}

// Leaf is the cgroup below it, in which the container is.
func (s Scope) Leaf() string { return path.Join(s.Path(), leaf) }

// Dir and LeafDir are the directories of both.
func (s Scope) Dir() string     { return dir(s.Path()) }
func (s Scope) LeafDir() string { return dir(s.Leaf()) }

// manager is the library's for the scope alone, without device rules: those are the leaf's.
func (s Scope) manager(r *cgroups.Resources) (*libsystemd.UnifiedManager, *cgroups.Resources, error) {
	own := &cgroups.Resources{}
	if r != nil {
		*own = *r
	}
	own.Devices, own.SkipDevices = nil, true
	m, err := libsystemd.NewUnifiedManager(&cgroups.Cgroup{Systemd: true, Parent: s.Slice, ScopePrefix: s.Prefix, Name: s.Name, Resources: own}, s.Dir())
	return m, own, err
}

// Start makes the unit, with a process of the caller's, because systemd makes none without. The process is to live until there is one in the leaf,
// which is made too; when the last one has ended systemd forgets the scope.
func (s Scope) Start(pid int, r *cgroups.Resources) error {
	m, own, err := s.manager(r)
	if err != nil {
		return fmt.Errorf("scope %s: %w", s.Unit(), err)
	}
	if err := m.Apply(pid); err != nil {
		return fmt.Errorf("scope %s: %w", s.Unit(), err)
	}
	for _, name := range []string{seat, leaf} {
		if err := os.Mkdir(filepath.Join(s.Dir(), name), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("scope %s: %w", s.Unit(), err)
		}
	}
	if err := os.WriteFile(filepath.Join(s.seatDir(), "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
		return fmt.Errorf("scope %s: %w", s.Unit(), err)
	}
	if err := m.Set(own); err != nil {
		return fmt.Errorf("scope %s: %w", s.Unit(), err)
	}
	return nil
}

// Set changes what r names, as properties and as files of the scope's cgroup.
func (s Scope) Set(r *cgroups.Resources) error {
	m, own, err := s.manager(r)
	if err != nil {
		return err
	}
	return m.Set(own)
}

// Restore makes properties of values that have been written back to the files of the scope's cgroup.
func (s Scope) Restore(ctx context.Context, values map[string]string) error {
	unified := maps.Clone(values)
	var empty []sdbus.Property
	for file, property := range map[string]string{"cpuset.cpus": "AllowedCPUs", "cpuset.mems": "AllowedMemoryNodes"} {
		if value, ok := unified[file]; ok && value == "" { // which the library takes for a mistake
			delete(unified, file)
			empty = append(empty, sdbus.Property{Name: property, Value: dbus.MakeVariant([]byte{})})
		}
	}
	if unified["cpu.idle"] == "1" { // which has no weight
		delete(unified, "cpu.weight")
	} else {
		delete(unified, "cpu.idle")
	}
	if len(empty) > 0 {
		if err := setProperties(ctx, s.Unit(), empty...); err != nil {
			return err
		}
	}
	return s.Set(&cgroups.Resources{Unified: unified})
}

// Pin keeps the scope's cgroup, and with it the count of what the kernel has killed for want of memory below it, when the last process has
// ended: systemd would remove it at once, but nobody can remove a directory on which something is mounted, nor one that holds such a
// directory. The unit ends all the same, and so does the leaf.
func (s Scope) Pin() error {
	if err := unix.Mount(s.seatDir(), s.seatDir(), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("pin the cgroup %s: %w", s.seatDir(), err)
	}
	return nil
}

// Unpin is idempotent.
func (s Scope) Unpin() error { return unpin(s.seatDir()) }

func (s Scope) seatDir() string { return filepath.Join(s.Dir(), seat) }

func unpin(dir string) error {
	for {
		switch err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); {
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT): // nothing is mounted there
			return nil
		case err != nil:
			return fmt.Errorf("unpin the cgroup %s: %w", dir, err)
		}
	}
}

// Trim removes the scope's cgroups after the end of the last process, when systemd could not because they were pinned. What is in use
// stays.
func (s Scope) Trim() {
	for _, d := range []string{s.LeafDir(), s.seatDir(), s.Dir()} {
		_ = unix.Rmdir(d) // Stop tells what cannot be removed
	}
}

// Stop unpins the scope, ends the unit, with what runs in it, lets systemd forget that it has failed, and removes the cgroups. It is
// idempotent.
func (s Scope) Stop() error {
	if err := s.Unpin(); err != nil {
		return err
	}
	s.Trim() // the usual case: nothing is left but, perhaps, the unit's name
	m, _, err := s.manager(nil)
	if err == nil {
		err = m.Destroy()
	}
	if err != nil {
		return fmt.Errorf("stop scope %s: %w", s.Unit(), err)
	}
	return nil
}

// StopScopeOf stops the scope whose leaf the cgroup is.
func StopScopeOf(cgroup string) error {
	if !IsScope(cgroup) {
		return fmt.Errorf("cgroup %s is not below a scope: %w", cgroup, errdefs.ErrInvalidArgument)
	}
	unit := path.Base(path.Dir(cgroup))
	prefix, name, ok := strings.Cut(strings.TrimSuffix(unit, scopeSuffix), "-")
	slice := path.Base(path.Dir(path.Dir(cgroup)))
	if !ok {
		return fmt.Errorf("cgroup %s is not below a scope of a container: %w", cgroup, errdefs.ErrInvalidArgument)
	}
	return Scope{Slice: slice, Prefix: prefix, Name: name}.Stop()
}
