// Package hostspecs keeps the specs of host devices that package hostdevice plans in a folder of CDI specs, one file a device.
//
// A spec is written whole or not at all, survives a crash, and is one that nodes take; nothing of others is written over or removed. Two
// processes that change a folder at a time wait for each other.
package hostspecs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/cdispec/lint"
	"monopod.dev/monopod/internal/devices/hostdevice"
	"monopod.dev/monopod/internal/kit/atomicfile"
)

// Specs are the folders of specs of a host.
type Specs struct {
	// Dirs are the folders that a node reads, absolute; the later wins.
	Dirs []string
	// Host is what specs are compared with.
	Host cdispec.Host
}

// Added is what Add has done.
type Added struct {
	File string
	// Replaced: there was a device of this name.
	Replaced bool
	// Mates are the other devices of the kind, sorted.
	Mates []string
	// Same are the devices, by their qualified names, that are the same node.
	Same []string
}

// Add writes a device down in a folder, which is made if it is not there. real is its node with links followed. Errors:
// errdefs.ErrAlreadyExists when the name is taken and, with replace, is not one that Add has given; those of package os.
func (s Specs) Add(dir string, p hostdevice.Plan, real string, replace bool) (a Added, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { // runtimes of any user read it
		return a, err
	}
	unlock, err := lock(dir)
	if err != nil {
		return a, err
	}
	defer unlock()
	a.File = filepath.Join(dir, p.File)
	set := s.load(dir)
	if a.Replaced, err = free(set, p, a.File, replace); err != nil {
		return a, err
	}
	data, err := s.encode(p, a.File)
	if err != nil {
		return a, err
	}
	a.Mates, a.Same = relatives(set, p, a.File, real)
	return a, atomicfile.Write(a.File, data, 0o644)
}

// load reads the folders, that of the caller too.
func (s Specs) load(dirs ...string) *cdispec.Set {
	all := slices.Clone(s.Dirs)
	for _, dir := range dirs {
		if !slices.Contains(all, dir) {
			all = append(all, dir)
		}
	}
	return new(cdispec.Reader).Load(all)
}

// free finds out whether a device may have its name, and whether it replaces one.
func free(set *cdispec.Set, p hostdevice.Plan, file string, replace bool) (replaces bool, err error) {
	for _, f := range set.Files {
		for _, d := range f.Spec.Devices {
			if f.Path != file && d.Name == p.Name && (f.Spec.Kind == p.Kind || hostdevice.IsKind(f.Spec.Kind)) {
				return false, fmt.Errorf("the name %q is taken: %s defines %s=%s; give another --name: %w", p.Name, f.Path, f.Spec.Kind, d.Name, errdefs.ErrAlreadyExists)
			}
		}
	}
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	at := slices.IndexFunc(set.Files, func(f *cdispec.File) bool { return f.Path == file })
	if at >= 0 {
		if why := notOurs(set.Files[at], p.Name); why != "" {
			return false, fmt.Errorf("%s is there, and %s: give another --name: %w", file, why, errdefs.ErrAlreadyExists)
		}
	}
	if !replace {
		what := "it cannot be read"
		if at >= 0 {
			what = set.Files[at].Spec.Kind + "=" + p.Name
		}
		return false, fmt.Errorf("the name %q is taken: %s is there (%s); replace it with --replace, take it away with 'monopod device rm %s', or give another --name: %w",
			p.Name, file, what, p.Name, errdefs.ErrAlreadyExists)
	}
	return true, nil
}

// notOurs says why a file is not one that Add has written for a device of that name; empty: it is.
func notOurs(f *cdispec.File, name string) string {
	if !hostdevice.IsKind(f.Spec.Kind) {
		return fmt.Sprintf("is of the kind %s, which 'monopod device add' makes none of", f.Spec.Kind)
	}
	var others []string
	for _, d := range f.Spec.Devices {
		if d.Name != name {
			others = append(others, d.Name)
		}
	}
	if len(others) > 0 {
		return fmt.Sprintf("defines other devices too (%s)", strings.Join(others, ", "))
	}
	return ""
}

// encode makes the file's bytes, which nodes take.
func (s Specs) encode(p hostdevice.Plan, file string) ([]byte, error) {
	body, err := yaml.Marshal(p.Spec)
	if err != nil {
		return nil, err
	}
	data := append([]byte("# Made by 'monopod device add'; 'monopod device rm "+p.Name+"' takes it away.\n"), body...)
	for _, f := range lint.Check(file, data, s.Host).Faults {
		if !f.Warning {
			return nil, fmt.Errorf("no spec can be made of this: %s: %s: %w", f.Where, f.Message, errdefs.ErrInvalidArgument)
		}
	}
	if _, err := cdispec.Parse(data); err != nil {
		return nil, fmt.Errorf("no spec can be made of this: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	return data, nil
}

// relatives are the devices of the same kind, and those that are the same node.
func relatives(set *cdispec.Set, p hostdevice.Plan, file, real string) (mates, same []string) {
	for name, d := range set.Devices {
		if d.File.Path == file {
			continue
		}
		kind, device, _ := strings.Cut(name, "=")
		if kind == p.Kind {
			mates = append(mates, device)
		}
		for _, n := range d.Edits.DeviceNodes {
			if at, err := filepath.EvalSymlinks(cdispec.HostPath(n)); err == nil && at == real {
				same = append(same, name)
				break
			}
		}
	}
	slices.Sort(mates)
	slices.Sort(same)
	return mates, same
}

// lock makes others that change a folder wait.
func lock(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(d.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return func() { d.Close() }, nil // the lock goes with the file
}
