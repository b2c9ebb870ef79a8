package devices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"monopod.dev/monopod/internal/devices/cdi"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/plugin"
	"monopod.dev/monopod/internal/devices/source"
	"monopod.dev/monopod/internal/devices/topology"
	"monopod.dev/monopod/internal/kit/keyed"
	"monopod.dev/monopod/internal/state"
)

// Problem is something that is wrong with what defines the devices.
type Problem = inventory.Problem

// Config configures a Manager.
type Config struct {
	// DB holds the ledger.
	DB *state.DB
	// Plugins are where device plugins are looked for; with no Dir there are none. Its Log and its Memory are not needed.
	Plugins plugin.Config
	// CDI says which specs are looked at. Its Log is not needed.
	CDI cdi.Config
	// Topology is the policy by which devices are near to each other, on which host.
	Topology topology.Config
	// Boot names the boot of the machine: what was prepared in another one is prepared again.
	Boot string
	Log  *slog.Logger
}

// Manager counts and grants the devices of the host. Its methods are safe for concurrent use.
type Manager struct {
	worlds  *worlds
	ledger  ledger
	aligner *topology.Aligner
	boot    string
	log     *slog.Logger
	now     func() time.Time

	subscribers subscribers
	pods        keyed.Lock[string] // serializes what is done for one pod

	mu sync.Mutex // guards what follows; never held over I/O
	// settled: Reconcile has compared the ledger with what runs. Until then nothing new is granted.
	settled bool
	// granted is the ledger's content by pod UID: changed after the disk is, so that nothing is published, nor thought
	// free, too early.
	granted map[string]podRecord
	// reserved is what an Admit under way has chosen, by pod UID.
	reserved map[string]podRecord
	// unwritten are those of reserved that their pods have been told of, by pod UID: all that is missing is the disk.
	unwritten map[string]podRecord
	// writes are those of unwritten that are on their way; when closing, there are no more.
	writes  sync.WaitGroup
	closing bool
	queue   queue
	// turnedAway: somebody was told of a shortage while devices were reserved that may become free again.
	turnedAway bool
	// unreadable are the records that cannot be read and may be those of living pods, by pod UID; under an empty one: the whole ledger.
	unreadable map[string]error
	// released are the pods that were released before Reconcile was: what their containers said when the caller looked at them is over. nil: it has been.
	released map[string]bool
	// unfit are the devices that failed their last check, with why.
	unfit map[deviceKey]error
	// learnt are the nodes of devices that a source's answers have told and that somebody had by another source, as long as no source changes.
	learnt map[deviceKey][]string
}

type deviceKey struct{ resource, name string }

func keyOf(d inventory.Device) deviceKey { return deviceKey{d.Resource, d.Name} }

// New reads the ledger and the CDI folders. It writes nothing. Records of the ledger that cannot be read are a problem, not
// an error; a topology policy that does not fit the host is one. It grants nothing before the first Reconcile.
func New(cfg Config) (*Manager, error) {
	if cfg.DB == nil || cfg.Log == nil {
		return nil, errors.New("devices: Config.DB and Config.Log must be set")
	}
	aligner, err := topology.New(cfg.Topology)
	if err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	// A resource that a plugin and a CDI spec know is the plugin's: it can do more.
	var sources []source.Source
	if cfg.Plugins.Dir != "" {
		cfg.Plugins.Log, cfg.Plugins.Memory = cfg.Log, newPluginMemory(cfg.DB)
		p, err := plugin.New(cfg.Plugins)
		if err != nil {
			return nil, err
		}
		sources = append(sources, p)
	}
	cfg.CDI.Log = cfg.Log
	m := newManager(cfg, append(sources, cdi.New(cfg.CDI))...)
	m.aligner = aligner
	return m, nil
}

// newManager takes the sources in the order of their precedence. It aligns nothing.
func newManager(cfg Config, sources ...source.Source) *Manager {
	m := &Manager{
		worlds:   &worlds{sources: sources},
		ledger:   newLedger(cfg.DB),
		aligner:  new(topology.Aligner),
		boot:     cfg.Boot,
		log:      cfg.Log,
		now:      time.Now,
		reserved: map[string]podRecord{}, unwritten: map[string]podRecord{},
		unfit: map[deviceKey]error{}, learnt: map[deviceKey][]string{},
	}
	m.granted, m.unreadable = m.ledger.load()
	m.released = map[string]bool{}
	for uid, err := range m.unreadable {
		m.log.Error("device ledger: a record cannot be read; no devices are granted to new pods until it is known which devices its pod has", "podUID", uid, "error", err)
	}
	return m
}

// Run follows the changes of the host's devices until ctx ends. Grants work without it, on what was found last.
func (m *Manager) Run(ctx context.Context) error {
	defer func() {
		m.mu.Lock()
		m.closing = true
		m.mu.Unlock()
		m.writes.Wait()
	}()
	all, ctx := errgroup.WithContext(ctx)
	for _, s := range m.worlds.sources {
		all.Go(func() error {
			return s.Run(ctx, func() {
				m.mu.Lock()
				clear(m.unfit) // what was wrong may be mended; the next grant looks again
				clear(m.learnt)
				m.mu.Unlock()
				m.subscribers.tick()
			})
		})
	}
	return all.Wait()
}

// Resources returns how many devices each resource has. A resource that is defined but has no usable device is there with 0.
func (m *Manager) Resources() map[string]inventory.Quantity {
	snap := m.worlds.now()
	all := make(map[string]inventory.Quantity, len(snap.Resources))
	for _, r := range snap.Resources {
		var q inventory.Quantity
		for _, d := range inventory.Units(snap.Of(r)) {
			if !d.Absent {
				q.Capacity++
			}
			if d.Unhealthy == "" {
				q.Allocatable++
			}
		}
		all[r] = q
	}
	return all
}

// Faults says in a few words, by resource, what is wrong with the devices that are not allocatable.
func (m *Manager) Faults() map[string]string {
	snap, all := m.worlds.now(), map[string]string{}
	for _, r := range snap.Resources {
		if text := faults(inventory.Units(snap.Of(r)), nil); text != "" {
			all[r] = strings.TrimPrefix(text, "; ")
		}
	}
	return all
}

// Problems returns all that is wrong now: with spec files, with devices that failed their last check, with the ledger.
func (m *Manager) Problems() []Problem {
	snap := m.worlds.now()
	problems := append([]Problem(nil), snap.Problems...)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range snap.Devices {
		if err := m.unfit[keyOf(d)]; err != nil {
			problems = append(problems, Problem{Resource: d.Resource, Paths: []string{d.Origin}, Message: err.Error()})
		}
	}
	for _, err := range sorted(m.unreadable) {
		problems = append(problems, Problem{Message: fmt.Sprintf("device ledger: %v", err)})
	}
	return problems
}

// sorted ranges over a map in the order of its keys.
func sorted[V any](m map[string]V) func(yield func(string, V) bool) {
	return func(yield func(string, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}
