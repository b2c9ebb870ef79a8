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

	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/devices/hostdevice"
	"monopod.dev/monopod/internal/kit/atomicfile"
)

// Device is a host device that is written down.
type Device struct {
	Kind, Name string
	File       string
}

// Qualified is its CDI name.
func (d Device) Qualified() string { return d.Kind + "=" + d.Name }

// Devices are those that Add has given.
func (s Specs) Devices() (all []Device) {
	for _, f := range s.load().Files {
		for _, name := range names(f) {
			if notOurs(f, name) == "" {
				all = append(all, Device{f.Spec.Kind, name, f.Path})
			}
		}
	}
	return all
}

// Find returns the device of a name, or of a qualified name. Errors: errdefs.ErrNotFound, with what there is; ErrFailedPrecondition when the
// name is there, and is not one that Add has given.
func (s Specs) Find(name string) (Device, error) {
	set := s.load()
	kind, bare, qualified := strings.Cut(name, "=")
	if !qualified {
		kind, bare = "", name
	}
	var found []Device
	var refused error
	for _, f := range set.Files {
		if !slices.ContainsFunc(names(f), func(n string) bool { return n == bare }) || qualified && f.Spec.Kind != kind {
			continue
		}
		if why := notOurs(f, bare); why != "" {
			refused = errors.Join(refused, fmt.Errorf("%s %s: take the device out of the file by hand, or with what has written it: %w", f.Path, why, errdefs.ErrFailedPrecondition))
			continue
		}
		found = append(found, Device{f.Spec.Kind, bare, f.Path})
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return Device{}, fmt.Errorf("%q is several devices: %s; leave one with --spec-dir DIR, or say which by its whole name: %w", name, list(found), errdefs.ErrFailedPrecondition)
	case refused != nil:
		return Device{}, refused
	}
	for _, f := range set.Faults { // a file of ours that somebody has broken
		if i := slices.IndexFunc(f.Paths, func(p string) bool { return filepath.Base(p) == hostdevice.FileOf(bare) }); i >= 0 {
			return Device{}, fmt.Errorf("%s cannot be read as a spec (%s): look into it, and remove it by hand: %w", f.Paths[i], f.Message, errdefs.ErrFailedPrecondition)
		}
	}
	return Device{}, fmt.Errorf("there is no device %q that 'monopod device add' has made in %s: %s: %w", name, strings.Join(set.Dirs, ", "), there(set), errdefs.ErrNotFound)
}

func names(f *cdispec.File) (all []string) {
	for _, d := range f.Spec.Devices {
		all = append(all, d.Name)
	}
	return all
}

func list(all []Device) string {
	var texts []string
	for _, d := range all {
		texts = append(texts, d.Qualified()+" ("+d.File+")")
	}
	return strings.Join(texts, ", ")
}

// there tells what there is to remove.
func there(set *cdispec.Set) string {
	var all []string
	for _, f := range set.Files {
		if hostdevice.IsKind(f.Spec.Kind) {
			all = append(all, names(f)...)
		}
	}
	if len(all) == 0 {
		return "there are none"
	}
	slices.Sort(all)
	return "there are " + strings.Join(slices.Compact(all), ", ")
}

// Remove takes a device that was found away, unless its file is another one's now (errdefs.ErrFailedPrecondition).
func (s Specs) Remove(d Device) error {
	dir := filepath.Dir(d.File)
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	now, err := Specs{Dirs: []string{dir}, Host: s.Host}.Find(d.Qualified())
	if err != nil {
		return err
	}
	if now != d {
		return fmt.Errorf("%s has become %s meanwhile (%s): %w", d.File, now.Qualified(), now.File, errdefs.ErrFailedPrecondition)
	}
	if err := os.Remove(d.File); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return atomicfile.SyncDir(dir)
}
