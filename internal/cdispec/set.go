package cdispec

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// File is one spec that was read and found valid. It is not to be changed.
type File struct {
	Path     string
	Priority int // the index of its folder: the greater wins
	Spec     *specs.Spec
}

// Device is one device of one file. It is not to be changed.
type Device struct {
	Name  string // qualified, "vendor.com/class=device"
	File  *File
	Edits *specs.ContainerEdits // its own; the file's are in File.Spec
}

// Fault is a file or folder that cannot be used, or files that contradict each other.
type Fault struct {
	Paths []string
	// Device is the qualified name of which the files have several definitions; else empty.
	Device  string
	Message string
}

// String is the fault on one line.
func (f Fault) String() string { return strings.Join(f.Paths, ", ") + ": " + f.Message }

// Set is the content of folders at one time.
type Set struct {
	Dirs   []string
	Files  []*File // in the order of reading
	Faults []Fault // sorted by path
	// Devices are those that can be injected, by their qualified name.
	Devices map[string]*Device
}

// Load reads all folders. It never fails: what cannot be read or used is a fault of the set.
func (r *Reader) Load(dirs []string) *Set {
	s := &Set{Dirs: dirs, Devices: map[string]*Device{}}
	for priority, dir := range dirs {
		s.readDir(r, dir, priority)
	}
	r.keep(s.Files)
	found := map[string][]*Device{}
	for _, f := range s.Files {
		for i := range f.Spec.Devices {
			d := &f.Spec.Devices[i]
			name := f.Spec.Kind + "=" + d.Name
			found[name] = append(found[name], &Device{Name: name, File: f, Edits: &d.ContainerEdits})
		}
	}
	for name, defs := range found {
		if d, ok := s.winner(name, defs); ok {
			s.Devices[name] = d
		}
	}
	slices.SortFunc(s.Faults, func(a, b Fault) int {
		return cmp.Or(slices.Compare(a.Paths, b.Paths), cmp.Compare(a.Message, b.Message))
	})
	return s
}

// readDir reads the files of a folder that are specs by their name (CDI: *.json and *.yaml, not in sub-folders).
func (s *Set) readDir(r *Reader, dir string, priority int) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return // a folder may come later
	}
	if err != nil {
		s.Faults = append(s.Faults, Fault{Paths: []string{dir}, Message: fmt.Sprintf("the folder cannot be read: %v", cause(err))})
		return
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); e.IsDir() || ext != ".json" && ext != ".yaml" {
			continue
		}
		path := filepath.Join(dir, e.Name())
		spec, err := r.Read(path)
		if errors.Is(err, fs.ErrNotExist) && e.Type()&fs.ModeSymlink == 0 {
			continue // removed since the folder was listed
		}
		if err != nil {
			s.Faults = append(s.Faults, Fault{Paths: []string{path}, Message: cause(err).Error()})
			continue
		}
		s.Files = append(s.Files, &File{Path: path, Priority: priority, Spec: spec})
	}
}

// winner applies CDI's precedence: the later folder wins. Two definitions in one folder contradict each other and are
// both refused, even where a later folder has a third: every runtime that injects with the CDI library then finds none,
// so granting the device would only move the failure to the container's start.
func (s *Set) winner(name string, defs []*Device) (*Device, bool) {
	conflict := map[int][]string{}
	best := defs[0]
	for _, d := range defs {
		conflict[d.File.Priority] = append(conflict[d.File.Priority], d.File.Path)
		if d.File.Priority > best.File.Priority {
			best = d
		}
	}
	ok := true
	for _, paths := range conflict {
		if len(paths) > 1 {
			ok = false
			s.Faults = append(s.Faults, Fault{Paths: paths, Device: name,
				Message: fmt.Sprintf("each of these files defines device %q, so it is given to nobody: remove it from all files but one", name)})
		}
	}
	return best, ok
}

// cause strips the operation and the path off an error of package os.
func cause(err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
