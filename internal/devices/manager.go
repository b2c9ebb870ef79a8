package devices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"monopod.dev/monopod/internal/devices/book"
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

// Manager counts and grants the devices of the host: it asks the sources, has the book decide, and the clerk write. Its methods are safe for concurrent use.
type Manager struct {
	worlds *worlds
	boot   string
	log    *slog.Logger
	now    func() time.Time

	subscribers *subscribers
	clerk       *clerk
	checks      *checks
	behind      behind
	pods        keyed.Lock[string] // serializes what is done for one pod
}

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
	return newManager(cfg, aligner, append(sources, cdi.New(cfg.CDI))...), nil
}

// newManager takes the sources in the order of their precedence.
func newManager(cfg Config, aligner *topology.Aligner, sources ...source.Source) *Manager {
	told, ledger := new(subscribers), newLedger(cfg.DB)
	records, damaged := ledger.load()
	for uid, err := range damaged {
		cfg.Log.Error("device ledger: a record cannot be read; no devices are granted to new pods until it is known which devices its pod has", "podUID", uid, "error", err)
	}
	return &Manager{
		worlds: &worlds{sources: sources}, boot: cfg.Boot, log: cfg.Log, now: time.Now,
		subscribers: told,
		clerk:       &clerk{ledger: ledger, subscribers: told, log: cfg.Log, book: book.New(cfg.Boot, aligner, records, damaged)},
		checks:      &checks{subscribers: told, failed: map[book.Key]error{}},
	}
}

// Run follows the changes of the host's devices until ctx ends. Grants work without it, on what was found last.
func (m *Manager) Run(ctx context.Context) error {
	defer m.behind.close()
	all, ctx := errgroup.WithContext(ctx)
	for _, s := range m.worlds.sources {
		all.Go(func() error {
			return s.Run(ctx, func() {
				m.checks.forget()
				m.clerk.note(func(b *book.Book) book.News {
					b.ForgetHardware()
					return book.All
				})
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
		if text := book.Faults(inventory.Units(snap.Of(r)), nil); text != "" {
			all[r] = strings.TrimPrefix(text, "; ")
		}
	}
	return all
}

// Problems returns all that is wrong now: with spec files, with devices that failed their last check, with the ledger.
func (m *Manager) Problems() []Problem {
	snap := m.worlds.now()
	problems := append([]Problem(nil), snap.Problems...)
	for _, d := range snap.Devices {
		if err := m.checks.of(d); err != nil {
			problems = append(problems, Problem{Resource: d.Resource, Paths: []string{d.Origin}, Message: err.Error()})
		}
	}
	m.clerk.with(func(b *book.Book) {
		for _, err := range b.Damages() {
			problems = append(problems, Problem{Message: fmt.Sprintf("device ledger: %v", err)})
		}
	})
	return problems
}
