// Package cdi makes allocatable devices of the CDI specs in a host's folders.
//
// What counts as what:
//
//   - A kind, "vendor.com/class", is a resource of the same name; each of its devices is one unit of it.
//
//   - Names in one file with identical edits, device nodes or network interfaces among them, are one unit with several
//     names.
//
//   - What a device is, is the set of host nodes of its own edits, whatever it is called; nodes that all devices of a
//     driver need (/dev/nvidiactl) do not count, nor do those of the file's edits. A device without nodes is its name.
//
//   - A device that is shared N times, by the configuration or an annotation of its spec, is N units: its shares, "gpu0", "gpu0#2" and so on.
//
//   - A device called "all" stands for the whole of its kind. It is no unit, except where its kind has no other device.
//
//   - A device that a later folder defines too is the later folder's. A device that two files of one folder define is
//     nobody's, and is reported with both files.
//
//   - A kind that cannot be a resource's name in Kubernetes is reported and not counted. One that a device plugin or a driver writes for
//     its own use is not counted either, and the configuration decides about the rest.
//
//   - A device whose host nodes are not there, or are others than its spec says, is unhealthy, and is healthy again by itself.
//     A node that the spec describes in full need not exist as long as its driver has the device.
//
// It guarantees that one bad file spoils nothing but itself, that each fault is among the snapshot's problems as long as
// it lasts, and that a change of the folders is seen as it happens, whether they exist at the start or not. It does
// not follow changes of a file outside of the folders that a symbolic link in them points to.
//
// Specs are read by package cdispec, as the runtime reads them.
package cdi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/host/numa"
)

// Config says where to look.
type Config struct {
	// Dirs are the folders, absolute; the later wins over the earlier.
	Dirs []string
	// SharedNodes are patterns (package path's) of host nodes that are no device's own; nil: DefaultSharedNodes.
	SharedNodes []string
	// Allow and Deny are patterns (package path's) of kinds that are resources, and that are not. Allow goes first; what is in neither is
	// one unless DefaultDeny has it.
	Allow, Deny []string
	// Sharing says which devices several containers may have at a time; the first that matches counts. See inventory.ShareAnnotation for the others.
	Sharing []Share
	Log     *slog.Logger
}

// Source is the CDI devices of a host. Its methods are safe for concurrent use.
type Source struct {
	dirs   []string
	shared patterns
	kinds  advertiser
	sharer sharer
	log    *slog.Logger
	host   cdispec.Host
	reader *cdispec.Reader
	near   *locality // New's, and then Run's

	catalog atomic.Pointer[catalog]
	wake    chan struct{} // tells Run that awaited has grown

	mu      sync.Mutex
	awaited map[string]bool // missing host paths of devices that somebody wanted
}

// New reads the folders once. Run keeps up with them.
func New(cfg Config) *Source {
	shared := cfg.SharedNodes
	if shared == nil {
		shared = DefaultSharedNodes
	}
	s := &Source{
		dirs:    cfg.Dirs,
		shared:  newPatterns(shared),
		kinds:   newAdvertiser(cfg.Allow, cfg.Deny),
		sharer:  newSharer(cfg.Sharing),
		log:     cfg.Log,
		host:    cdispec.ThisHost(),
		reader:  new(cdispec.Reader),
		near:    newLocality(numa.DevicesOfThisHost()),
		wake:    make(chan struct{}, 1),
		awaited: map[string]bool{},
	}
	s.catalog.Store(s.load().look(s.host, newIdentifier(s.shared), s.near))
	return s
}

// load reads the folders.
func (s *Source) load() *catalog { return load(s.reader, s.dirs, s.kinds).share(s.sharer) }

// Snapshot returns the devices as they were last read. It is not to be changed.
func (s *Source) Snapshot() *inventory.Snapshot { return s.catalog.Load().snapshot }

// Run keeps up with the folders and with the devices' nodes. It reads the folders again whenever they change, and looks at the nodes when
// one comes or goes; it calls changed when the snapshot may be another one, and when a host path appears that Check
// has found missing. It returns when ctx ends.
func (s *Source) Run(ctx context.Context, changed func()) error {
	w, err := newWatcher()
	if err != nil {
		// A node whose folders do not change serves all the same: say what is missing and go on.
		s.publish(s.load().look(s.host, newIdentifier(s.shared), s.near), err)
		changed()
		<-ctx.Done()
		return nil
	}
	defer w.close()
	for about := ofFolders | ofNodes; ; {
		health := s.refresh(w, about)
		if arrived := s.dropArrived(); health || arrived || about&ofFolders != 0 {
			changed()
		}
		if about, err = w.wait(ctx, s.wake); err != nil {
			return nil
		}
	}
}

// refresh reads what is concerned, and says whether the devices' health is another one.
func (s *Source) refresh(w *watcher, about scope) bool {
	last := s.catalog.Load()
	next := last
	_, err := w.aim(s.dirs, s.targets(last)) // first, so that no change is missed
	if about&ofFolders != 0 {
		next = s.load()
	}
	next = next.look(s.host, newIdentifier(s.shared), s.near)
	// Links may lead elsewhere now, and specs name other nodes: what was not watched while it was looked at is looked at again.
	for grown, tries := true, 0; grown && tries < maxLinks; tries++ {
		if grown, err = w.aim(s.dirs, s.targets(next)); grown {
			next = next.look(s.host, newIdentifier(s.shared), s.near)
		}
	}
	s.publish(next, err)
	return !sameHealth(last.snapshot, next.snapshot)
}

// publish replaces the catalog, and logs the problems that are new.
func (s *Source) publish(next *catalog, watchErr error) {
	next.setWatchError(s.dirs, watchErr)
	last := s.catalog.Swap(next)
	for _, p := range next.snapshot.Problems {
		if !slices.ContainsFunc(last.snapshot.Problems, func(o inventory.Problem) bool { return o.String() == p.String() }) {
			s.log.Warn("CDI spec problem", "paths", p.Paths, "problem", p.Message)
		}
	}
}

// Check compares a device with the host as it is now. The error is a *cdispec.DriftError, or a plain one for a name that has no
// device. inUse says that the caller's container has been given the device before.
func (s *Source) Check(resource, name string, inUse bool) error {
	d, ok := s.catalog.Load().byName[inventory.CDIName(resource, device(name))]
	if !ok {
		return fmt.Errorf("%s: no CDI spec in %v defines it: %w", inventory.CDIName(resource, name), s.dirs, fs.ErrNotExist)
	}
	err := s.host.Check(d, inUse)
	if drift := (*cdispec.DriftError)(nil); errors.As(err, &drift) {
		s.await(drift.Faults)
	}
	return err
}

// await makes Run look out for the paths that are missing.
func (s *Source) await(faults []cdispec.Drift) {
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

// dropArrived forgets the awaited paths that exist, and says whether there were any. Called after aim, so that none arrives between
// the two unseen.
func (s *Source) dropArrived() (any bool) {
	for _, path := range s.awaitedPaths() {
		if _, err := os.Stat(path); err == nil { // as check looks: what it calls missing must not count as arrived
			s.mu.Lock()
			delete(s.awaited, path)
			s.mu.Unlock()
			any = true
		}
	}
	return any
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

func (s *Source) targets(c *catalog) []string { return slices.Concat(s.awaitedPaths(), c.paths) }
