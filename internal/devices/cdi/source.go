// Package cdi makes allocatable devices of the CDI specs in a host's folders.
//
// What counts as what:
//   - A kind, "vendor.com/class", is a resource of the same name; each of its devices is one unit of it.
//   - Names in one file with identical edits, device nodes or network interfaces among them, are one unit with several
//     names.
//   - What a device is, is the set of host nodes of its own edits, whatever it is called; nodes that all devices of a
//     driver need (/dev/nvidiactl) do not count, nor do those of the file's edits. A device without nodes is its name.
//   - A device called "all" stands for the whole of its kind. It is no unit, except where its kind has no other device.
//   - A device that a later folder defines too is the later folder's. A device that two files of one folder define is
//     nobody's, and is reported with both files.
//   - A kind that cannot be a resource's name in Kubernetes is reported and not counted.
//
// It guarantees that one bad file spoils nothing but itself, that each fault is among the snapshot's problems as long as
// it lasts, and that a change of the folders is seen as it happens, whether they exist at the start or not. It does
// not follow changes of a file outside of the folders that a symbolic link in them points to.
//
// Specs are parsed and validated by the CDI project's own library, of which the catalog's choice is a subset: what is
// granted here can be injected by any runtime that uses the library.
package cdi

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"monopod.dev/monopod/internal/devices/inventory"
)

// Config says where to look.
type Config struct {
	// Dirs are the folders, absolute; the later wins over the earlier.
	Dirs []string
	// SharedNodes are patterns (package path's) of host nodes that are no device's own; nil: DefaultSharedNodes.
	SharedNodes []string
	Log         *slog.Logger
}

// Source is the CDI devices of a host. Its methods are safe for concurrent use.
type Source struct {
	dirs   []string
	shared []string
	log    *slog.Logger
	host   host

	catalog atomic.Pointer[catalog]
	wake    chan struct{} // tells Run that awaited has grown

	mu      sync.Mutex
	awaited map[string]bool // missing host paths of devices that somebody wanted
}

// New reads the folders once. Run keeps up with them.
func New(cfg Config) *Source {
	s := &Source{
		dirs:    cfg.Dirs,
		shared:  cfg.SharedNodes,
		log:     cfg.Log,
		host:    host{procDevices: "/proc/devices", sysClassNet: "/sys/class/net"},
		wake:    make(chan struct{}, 1),
		awaited: map[string]bool{},
	}
	if s.shared == nil {
		s.shared = DefaultSharedNodes
	}
	s.catalog.Store(s.load())
	return s
}

func (s *Source) load() *catalog { return load(s.dirs, newIdentifier(s.shared)) }

// Snapshot returns the devices as they were last read. It is not to be changed.
func (s *Source) Snapshot() *inventory.Snapshot { return s.catalog.Load().snapshot }

// Run reads the folders again whenever they change, and calls changed after that, and when a host path appears that
// Check has found missing. It returns when ctx ends.
func (s *Source) Run(ctx context.Context, changed func()) error {
	w, err := newWatcher()
	if err != nil {
		// A node whose folders do not change serves all the same: say what is missing and go on.
		s.reload(err)
		changed()
		<-ctx.Done()
		return nil
	}
	defer w.close()
	for {
		s.reload(w.aim(s.targets()))
		s.dropArrived()
		changed()
		if w.wait(ctx, s.wake) != nil {
			return nil
		}
	}
}

// reload replaces the catalog, and logs the problems that are new.
func (s *Source) reload(watchErr error) {
	next := s.load()
	if watchErr != nil {
		next.snapshot.Problems = append(next.snapshot.Problems, inventory.Problem{
			Paths: s.dirs, Message: fmt.Sprintf("changes are not seen before a restart: %v", watchErr)})
	}
	last := s.catalog.Swap(next)
	for _, p := range next.snapshot.Problems {
		if !slices.ContainsFunc(last.snapshot.Problems, func(o inventory.Problem) bool { return o.String() == p.String() }) {
			s.log.Warn("CDI spec problem", "paths", p.Paths, "problem", p.Message)
		}
	}
}

// Check compares a device with the host as it is now. The error is a *DriftError, or a plain one for a name that has no
// device. inUse says that the caller's container has been given the device before.
func (s *Source) Check(resource, name string, inUse bool) error {
	e, ok := s.catalog.Load().byName[inventory.CDIName(resource, name)]
	if !ok {
		return fmt.Errorf("%s: no CDI spec in %v defines it: %w", inventory.CDIName(resource, name), s.dirs, fs.ErrNotExist)
	}
	faults := s.host.check([]*specs.ContainerEdits{&e.file.spec.ContainerEdits, e.edits}, inUse)
	if len(faults) == 0 {
		return nil
	}
	s.await(faults)
	return &DriftError{Spec: e.file.path, Device: inventory.CDIName(resource, name), Faults: faults}
}

// await makes Run look out for the paths that are missing.
func (s *Source) await(faults []Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	grown := false
	for _, f := range faults {
		if f.Missing && filepath.IsAbs(f.Path) && !s.awaited[f.Path] {
			s.awaited[f.Path] = true
			grown = true
		}
	}
	if grown {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// dropArrived forgets the awaited paths that exist. Called after aim, so that none arrives between the two unseen.
func (s *Source) dropArrived() {
	for _, path := range s.awaitedPaths() {
		if _, err := os.Stat(path); err == nil { // as check looks: what it calls missing must not count as arrived
			s.mu.Lock()
			delete(s.awaited, path)
			s.mu.Unlock()
		}
	}
}

func (s *Source) awaitedPaths() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var paths []string
	for p := range s.awaited {
		paths = append(paths, p)
	}
	return paths
}

func (s *Source) targets() []string { return append(slices.Clone(s.dirs), s.awaitedPaths()...) }
