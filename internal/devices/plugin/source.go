package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/source"
	"monopod.dev/monopod/internal/kit/wait"
)

// Where plugins look for a kubelet.
const (
	DefaultDir         = "/var/lib/kubelet/device-plugins"
	DefaultRegistryDir = "/var/lib/kubelet/plugins_registry"
)

const (
	defaultGrace = 5 * time.Minute
	// The kubelet sets no limit to Allocate, so plugins may take their time to make a device ready; without one, a plugin that hangs would
	// stop all pods that want its resource, and nobody would be told. It is what the API itself gives PreStartContainer for that work.
	defaultAllocateTimeout = 30 * time.Second
)

// Config configures a Source.
type Config struct {
	// Dir is the folder of kubelet.sock and of the plugins' sockets, absolute. It is made when it is missing.
	Dir string
	// RegistryDir is the plugin watcher's folder, absolute; empty: there is none.
	RegistryDir string
	// Grace is for how long the devices of a plugin that is gone stay known, unhealthy; 0: five minutes.
	Grace time.Duration
	// AllocateTimeout is how long an Allocate may take; 0: 30 s.
	AllocateTimeout time.Duration
	// Memory remembers over restarts which resources are plugins'; nil: that is not known before they register.
	Memory Memory
	Log    *slog.Logger
}

// pace is how often things are done; tests hurry.
type pace struct {
	gather   time.Duration // how long the first change waits for others
	spacing  time.Duration // least time between two snapshots
	retryMin time.Duration // first wait after a failed attempt to talk to a plugin; it doubles
	retryMax time.Duration
	answer   time.Duration // how long a plugin has for what takes no time
	active   time.Duration // how long a plugin has to show that it is active
	prefer   time.Duration
	start    time.Duration
	silence  time.Duration // how long after the start a plugin may take to register by itself
}

var usual = pace{
	gather: 5 * time.Millisecond, spacing: 20 * time.Millisecond,
	retryMin: 20 * time.Millisecond, retryMax: 10 * time.Second,
	answer: 5 * time.Second, active: time.Second, prefer: 1500 * time.Millisecond, start: preStartTimeout,
	silence: 3 * time.Second,
}

// Source is the devices of device plugins. Its methods are safe for concurrent use.
type Source struct {
	cfg  Config
	log  *slog.Logger
	pace pace

	snapshot atomic.Pointer[inventory.Snapshot]
	dirty    chan struct{} // has a value when the snapshot is older than what follows
	// remembered are the resources that Memory has, sorted. It is touched by New and by the publisher only.
	remembered []string
	started    time.Time

	mu      sync.Mutex // never held over I/O
	plugins map[string]*plugin
	// awaited are resources that were plugins' when the node ended, and of which no plugin has told its devices since.
	awaited map[string]bool
	// lost are the problems of resources whose plugin was forgotten, by resource: where its devices went, until somebody tells some again.
	lost map[string]inventory.Problem
	// troubles are the problems that are no plugin's, by whose they are.
	troubles map[string]inventory.Problem
}

// plugin is who offers one resource.
type plugin struct {
	live *session // has told its devices
	next *session // has registered, and takes live's place when it tells its devices
}

var (
	_ source.Source  = (*Source)(nil)
	_ source.Adviser = (*Source)(nil)
	_ source.Starter = (*Source)(nil)
	_ source.Lasting = (*Source)(nil)
)

// New returns a source without devices. It touches nothing: Run does.
func New(cfg Config) (*Source, error) {
	cfg.Grace = cmp.Or(cfg.Grace, defaultGrace)
	cfg.AllocateTimeout = cmp.Or(cfg.AllocateTimeout, defaultAllocateTimeout)
	switch {
	case cfg.Log == nil:
		return nil, errors.New("device plugins: Config.Log must be set")
	case !filepath.IsAbs(cfg.Dir):
		return nil, fmt.Errorf("device plugins: the folder %q must be absolute, such as %s", cfg.Dir, DefaultDir)
	case cfg.RegistryDir != "" && !filepath.IsAbs(cfg.RegistryDir):
		return nil, fmt.Errorf("device plugins: the plugin watcher's folder %q must be absolute, such as %s", cfg.RegistryDir, DefaultRegistryDir)
	case cfg.Grace < 0 || cfg.AllocateTimeout < 0:
		return nil, fmt.Errorf("device plugins: grace %s, allocate time-out %s: a time must not be negative", cfg.Grace, cfg.AllocateTimeout)
	}
	cfg.Dir = filepath.Clean(cfg.Dir)
	if path := filepath.Join(cfg.Dir, kubeletSocket); len(path) > maxSocketPath {
		return nil, fmt.Errorf("device plugins: %s has %d bytes, and a socket's path at most %d: choose a shorter folder", path, len(path), maxSocketPath)
	}
	s := &Source{
		cfg: cfg, log: cfg.Log, pace: usual, dirty: make(chan struct{}, 1),
		plugins: map[string]*plugin{}, awaited: map[string]bool{}, lost: map[string]inventory.Problem{}, troubles: map[string]inventory.Problem{}, started: time.Now(),
	}
	s.recall()
	s.snapshot.Store(s.build())
	return s, nil
}

// Name is "device-plugin".
func (s *Source) Name() string { return "device-plugin" }

// Snapshot returns the devices as the plugins told them last. It is not to be changed.
func (s *Source) Snapshot() *inventory.Snapshot { return s.snapshot.Load() }

// AnswersLast makes it a source.Lasting: a container that restarts is given what the plugin answered when it was admitted, as by kubelets.
func (s *Source) AnswersLast() {}

// Run serves the registration socket and keeps up with the plugins until ctx ends; kubelet.sock is then gone, and everything that Run started
// has ended. It is called once. A folder that cannot be used is a problem of the snapshot, and is tried again.
func (s *Source) Run(ctx context.Context, changed func()) error {
	r := &runner{Source: s, ctx: ctx}
	defer time.AfterFunc(s.cfg.Grace, s.giveUp).Stop()
	r.wg.Go(func() { r.serveSocket() })
	if s.cfg.RegistryDir != "" {
		r.wg.Go(func() { r.followRegistry() })
	}
	s.publish(ctx, changed)
	r.wg.Wait()
	return nil
}

// runner is a Source that runs.
type runner struct {
	*Source
	ctx context.Context
	wg  sync.WaitGroup
}

// touch has the snapshot made anew.
func (s *Source) touch() {
	select {
	case s.dirty <- struct{}{}:
	default:
	}
}

// publish makes a snapshot of each burst of changes. However many there are, it takes a tenth of a processor at most.
func (s *Source) publish(ctx context.Context, changed func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.dirty:
		}
		if wait.For(ctx, s.pace.gather) != nil {
			return
		}
		select {
		case <-s.dirty:
		default:
		}
		began := time.Now()
		snap := s.build()
		s.remember(snap.Resources)
		s.snapshot.Store(snap)
		changed()
		if wait.For(ctx, max(s.pace.spacing, 9*time.Since(began))) != nil {
			return
		}
	}
}

// build makes a snapshot of what is known.
func (s *Source) build() *inventory.Snapshot {
	snap := &inventory.Snapshot{Places: []string{s.cfg.Dir}}
	if s.cfg.RegistryDir != "" {
		snap.Places = append(snap.Places, s.cfg.RegistryDir)
	}
	s.mu.Lock()
	lists := map[string][]inventory.Device{} // shared, and changed by nobody
	for name, p := range s.plugins {
		for _, one := range []*session{p.live, p.next} {
			if one == nil {
				continue
			}
			snap.Problems = append(snap.Problems, one.problems()...)
			if !one.expired {
				lists[name] = append(lists[name], one.devices...)
			}
		}
	}
	snap.Problems = slices.AppendSeq(snap.Problems, maps.Values(s.troubles))
	snap.Problems = slices.AppendSeq(snap.Problems, maps.Values(s.lost))
	var late []inventory.Problem
	snap.Awaited, late = s.stillAwaited()
	s.mu.Unlock()
	for _, name := range snap.Awaited {
		lists[name] = append(lists[name], nil...) // it is there, without a device
	}
	snap.Problems = append(snap.Problems, late...)

	snap.Resources = slices.Sorted(maps.Keys(lists))
	for _, name := range snap.Resources {
		snap.Devices = append(snap.Devices, lists[name]...)
	}
	slices.SortFunc(snap.Problems, func(a, b inventory.Problem) int {
		return cmp.Or(slices.Compare(a.Paths, b.Paths), cmp.Compare(a.Message, b.Message))
	})
	return snap
}

// trouble sets, or with an empty message ends, a problem that is no registered plugin's.
func (s *Source) trouble(whose, path, message string) {
	s.mu.Lock()
	was := s.troubles[whose].Message
	if message == "" {
		delete(s.troubles, whose)
	} else {
		s.troubles[whose] = inventory.Problem{Paths: []string{path}, Message: message}
	}
	s.mu.Unlock()
	if was == message {
		return
	}
	if message != "" {
		s.log.Warn("device plugins", "path", path, "problem", message)
	}
	s.touch()
}
