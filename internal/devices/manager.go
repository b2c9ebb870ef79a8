package devices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"monopod.dev/monopod/internal/devices/cdi"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/state"
)

// Source is where devices come from.
type Source interface {
	// Snapshot returns the devices as they are known now, at once, from the moment the source exists. The result is
	// never changed.
	Snapshot() *inventory.Snapshot
	// Run keeps the snapshot up with the world until ctx ends, and calls changed, from one goroutine, after each new
	// one and when a Check that failed may succeed now.
	Run(ctx context.Context, changed func()) error
	// Check says whether a device of the snapshot can be used right now. inUse: by the container that has it already.
	Check(resource, name string, inUse bool) error
}

// Problem is something that is wrong with what defines the devices.
type Problem = inventory.Problem

// Config configures a Manager.
type Config struct {
	// DB holds the ledger.
	DB *state.DB
	// CDISpecDirs are the folders of CDI specs, the later winning over the earlier.
	CDISpecDirs []string
	Log         *slog.Logger
}

// Manager counts and grants the devices of the host. Its methods are safe for concurrent use.
type Manager struct {
	source Source
	ledger ledger
	log    *slog.Logger
	now    func() time.Time

	changed chan struct{}
	pods    keyedLock // serializes what is done for one pod

	mu sync.Mutex // guards what follows; never held over I/O
	// granted is the ledger's content by pod UID: changed after the disk is, so that nothing is published, nor thought
	// free, too early.
	granted map[string]podRecord
	// reserved is what a Grant under way has chosen, by pod UID.
	reserved map[string]containerRecord
	// turnedAway: somebody was told of a shortage while devices were reserved that may become free again.
	turnedAway bool
	// unreadable is set while a record that cannot be read may be that of a living pod.
	unreadable error
	// unfit are the devices that failed their last check, with why.
	unfit map[deviceKey]error
}

type deviceKey struct{ resource, name string }

// New reads the ledger and the CDI folders. It writes nothing. Records of the ledger that cannot be read are a problem, not
// an error.
func New(cfg Config) (*Manager, error) {
	if cfg.DB == nil || cfg.Log == nil {
		return nil, errors.New("devices: Config.DB and Config.Log must be set")
	}
	return newManager(cfg.DB, cdi.New(cdi.Config{Dirs: cfg.CDISpecDirs, Log: cfg.Log}), cfg.Log), nil
}

func newManager(db *state.DB, source Source, log *slog.Logger) *Manager {
	m := &Manager{
		source:   source,
		ledger:   newLedger(db),
		log:      log,
		now:      time.Now,
		changed:  make(chan struct{}, 1),
		reserved: map[string]containerRecord{},
		unfit:    map[deviceKey]error{},
	}
	m.granted, m.unreadable = m.ledger.load()
	if m.unreadable != nil {
		log.Error("device ledger: no devices are granted to new containers until the pods of these records are gone", "error", m.unreadable)
	}
	return m
}

// Run follows the changes of the host's devices until ctx ends. Grants work without it, on what was found last.
func (m *Manager) Run(ctx context.Context) error {
	return m.source.Run(ctx, func() {
		m.mu.Lock()
		clear(m.unfit) // what was wrong may be mended; the next grant looks again
		m.mu.Unlock()
		m.tick()
	})
}

// Changed has a tick whenever Resources may have changed, or a Grant that was not ready may be now: a change of the
// specs, a device node that has come, a device that was given back. One tick stands for any number of changes.
func (m *Manager) Changed() <-chan struct{} { return m.changed }

func (m *Manager) tick() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// Resources returns the capacity: how many devices each resource has, granted or not. A resource that is defined but
// has no usable device is there with 0.
func (m *Manager) Resources() map[string]int64 {
	snap := m.source.Snapshot()
	count := make(map[string]int64, len(snap.Resources))
	for _, r := range snap.Resources {
		count[r] = int64(len(inventory.Units(snap.Of(r))))
	}
	return count
}

// Problems returns all that is wrong now: with spec files, with devices that failed their last check, with the ledger.
func (m *Manager) Problems() []Problem {
	snap := m.source.Snapshot()
	problems := append([]Problem(nil), snap.Problems...)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range snap.Devices {
		if err := m.unfit[deviceKey{d.Resource, d.Name}]; err != nil {
			problems = append(problems, Problem{Resource: d.Resource, Paths: []string{d.Origin}, Message: err.Error()})
		}
	}
	if m.unreadable != nil {
		problems = append(problems, Problem{Message: fmt.Sprintf("device ledger: %v", m.unreadable)})
	}
	return problems
}

// keyedLock is a lock for each key.
type keyedLock struct {
	mu   sync.Mutex
	busy map[string]chan struct{} // closed by the holder when it is done
}

// lock waits for the key, or for ctx to end. What it returns gives the key back.
func (k *keyedLock) lock(ctx context.Context, key string) (unlock func(), err error) {
	for {
		k.mu.Lock()
		wait, held := k.busy[key]
		if !held {
			done := make(chan struct{})
			if k.busy == nil {
				k.busy = map[string]chan struct{}{}
			}
			k.busy[key] = done
			k.mu.Unlock()
			return func() {
				k.mu.Lock()
				delete(k.busy, key)
				k.mu.Unlock()
				close(done)
			}, nil
		}
		k.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
