package cdi

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	cdilib "tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"monopod.dev/monopod/internal/devices/inventory"
)

// nameOfAll is the device name that vendors' tools give to the whole of a kind.
const nameOfAll = "all"

// maxSpecSize bounds what is read of one file; the largest real specs have some hundred kilobytes.
const maxSpecSize = 16 << 20

// file is one spec that was read and found valid.
type file struct {
	path     string
	priority int // the index of its folder: the greater wins
	spec     *specs.Spec
	counted  bool // its devices are resources
}

// entry is one device of one file.
type entry struct {
	file  *file
	edits *specs.ContainerEdits
}

// catalog is the folders' content at one time. It is not changed after load; look makes another one of it.
type catalog struct {
	snapshot *inventory.Snapshot
	// byName has the entry of every CDI name that can be injected, of aliases too.
	byName map[string]entry
	// paths are the host paths on which the devices' health depends.
	paths []string
	// problems are those of the files; the snapshot has them and what else there is.
	problems []inventory.Problem
}

// load reads all folders. It never fails: what cannot be read or used is a problem of the snapshot.
func load(dirs []string, kinds advertiser) *catalog {
	l := loader{advertiser: kinds, found: map[string][]entry{}, kinds: map[string]bool{}}
	for priority, dir := range dirs {
		l.readDir(dir, priority)
	}
	c := l.resolve()
	c.snapshot.Places = dirs
	return c
}

type loader struct {
	advertiser
	found    map[string][]entry // by CDI name, in the order of reading
	kinds    map[string]bool
	problems []inventory.Problem
}

func (l *loader) problem(kind string, paths []string, format string, args ...any) {
	l.problems = append(l.problems, inventory.Problem{Resource: kind, Paths: paths, Message: fmt.Sprintf(format, args...)})
}

// readDir reads the files of a folder that are specs by their name (CDI: *.json and *.yaml, not in sub-folders).
func (l *loader) readDir(dir string, priority int) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return // a folder may come later
	}
	if err != nil {
		l.problem("", []string{dir}, "the folder cannot be read: %v", cause(err))
		return
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); e.IsDir() || ext != ".json" && ext != ".yaml" {
			continue
		}
		path := filepath.Join(dir, e.Name())
		spec, err := readSpec(path, priority)
		if errors.Is(err, fs.ErrNotExist) && e.Type()&fs.ModeSymlink == 0 {
			continue // removed since the folder was listed
		}
		if err != nil {
			l.problem("", []string{path}, "%s", strings.ReplaceAll(err.Error(), fmt.Sprintf(" %q", path), ""))
			continue
		}
		l.add(&file{path: path, priority: priority, spec: spec})
	}
}

// readSpec parses and validates one file.
func readSpec(path string, priority int) (spec *specs.Spec, err error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("is a %s, not a regular file", info.Mode().Type())
	case info.Size() > maxSpecSize:
		return nil, fmt.Errorf("has %d bytes, more than the %d that a spec may have", info.Size(), maxSpecSize)
	}
	// A list of the spec with a null in it makes the library's validation panic: outside bytes must not do that to us.
	defer func() {
		if r := recover(); r != nil {
			spec, err = nil, fmt.Errorf("invalid CDI Spec: a list has an empty (null) entry, or the like: %v", r)
		}
	}()
	parsed, err := cdilib.ReadSpec(path, priority)
	if err != nil {
		return nil, err
	}
	return parsed.Spec, nil
}

func (l *loader) add(f *file) {
	if f.counted = l.advertises(f.spec.Kind, f.path); f.counted {
		if reasons := notAResource(f.spec.Kind); len(reasons) > 0 {
			f.counted = false
			l.problem(f.spec.Kind, []string{f.path}, "kind %q is valid for CDI, but pods cannot ask for it as a resource: %s",
				f.spec.Kind, strings.Join(reasons, "; "))
		}
	}
	if f.counted {
		l.kinds[f.spec.Kind] = true
	}
	for i := range f.spec.Devices {
		d := &f.spec.Devices[i]
		name := inventory.CDIName(f.spec.Kind, d.Name)
		l.found[name] = append(l.found[name], entry{file: f, edits: &d.ContainerEdits})
	}
}

// notAResource says why a kind is no extended resource's name (Kubernetes: a qualified name with a domain that is not
// kubernetes.io's; CDI allows capitals and underscores in the vendor, Kubernetes does not).
func notAResource(kind string) []string {
	if strings.Contains(kind, "kubernetes.io/") {
		return []string{"the domain kubernetes.io is reserved"}
	}
	// Quotas count a resource under its name with this prefix, which must fit as well.
	return validation.IsQualifiedName("requests." + kind)
}

// resolve decides which file's definition of each device counts, and makes one device of the names that mean the same
// hardware.
func (l *loader) resolve() *catalog {
	c := &catalog{snapshot: &inventory.Snapshot{}, byName: map[string]entry{}}
	for name, defs := range l.found {
		if e, ok := l.winner(name, defs); ok {
			c.byName[name] = e
		}
	}
	byKind := map[string][]string{}
	for name, e := range c.byName {
		if !e.file.counted {
			continue
		}
		vendor, class, device := parser.ParseDevice(name)
		kind := vendor + "/" + class
		byKind[kind] = append(byKind[kind], device)
	}
	for kind := range l.kinds {
		c.snapshot.Resources = append(c.snapshot.Resources, kind)
		c.snapshot.Devices = append(c.snapshot.Devices, c.unify(kind, byKind[kind])...)
	}
	slices.Sort(c.snapshot.Resources)
	slices.SortFunc(c.snapshot.Devices, func(a, b inventory.Device) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), inventory.CompareNames(a.Name, b.Name))
	})
	slices.SortFunc(l.problems, func(a, b inventory.Problem) int {
		return cmp.Or(slices.Compare(a.Paths, b.Paths), cmp.Compare(a.Message, b.Message))
	})
	c.problems, c.snapshot.Problems = l.problems, l.problems
	return c
}

// winner applies CDI's precedence: the later folder wins. Two definitions in one folder contradict each other and are
// both refused, even where a later folder has a third: every runtime that injects with the CDI library then finds none,
// so granting the device would only move the failure to the container's start.
func (l *loader) winner(name string, defs []entry) (entry, bool) {
	conflict := map[int][]string{}
	best := defs[0]
	for _, d := range defs {
		conflict[d.file.priority] = append(conflict[d.file.priority], d.file.path)
		if d.file.priority > best.file.priority {
			best = d
		}
	}
	ok := true
	for _, paths := range conflict {
		if len(paths) > 1 {
			ok = false
			l.problem(best.file.spec.Kind, paths, "each of these files defines device %q, so it is given to nobody: remove it from all files but one", name)
		}
	}
	return best, ok
}

// unify makes devices of a kind's names. Names of one file with the very same edits, device nodes or network interfaces
// among them, are one piece of hardware (vendors' tools name a device by its index and by its UUID). The name that
// stands for it is the longest, because an index is short and moves, a serial number or UUID is long and stays.
func (c *catalog) unify(kind string, names []string) []inventory.Device {
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(-cmp.Compare(len(a), len(b)), inventory.CompareNames(a, b))
	})
	var devices []inventory.Device
	known := map[string]int{} // index in devices, by what makes names one device
	for _, name := range names {
		e := c.byName[inventory.CDIName(kind, name)]
		if name != nameOfAll {
			if key := sameHardware(e); key != "" {
				if i, ok := known[key]; ok {
					devices[i].Aliases = append(devices[i].Aliases, name)
					continue
				}
				known[key] = len(devices)
			}
		}
		devices = append(devices, inventory.Device{Resource: kind, Name: name, Origin: e.file.path, Whole: name == nameOfAll})
	}
	return devices
}

// setWatchError adds to the problems that changes are not seen. Called before the catalog is published.
func (c *catalog) setWatchError(dirs []string, err error) {
	if c.snapshot.Problems = c.problems; err != nil {
		c.snapshot.Problems = append(slices.Clone(c.problems), inventory.Problem{
			Paths: dirs, Message: fmt.Sprintf("changes are not seen before a restart: %v", err)})
	}
}

// cause strips the operation and the path off an error of package os.
func cause(err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
