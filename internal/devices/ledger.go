package devices

import (
	"errors"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/state"
)

// tableName is the ledger's table in the state database. A record holds all that one pod has; its key is the pod's UID.
const tableName = "deviceGrants"

// podRecord is one record of the ledger.
type podRecord struct {
	Namespace  string                     `json:"namespace"`
	Name       string                     `json:"name"`
	Containers map[string]containerRecord `json:"containers"`
}

// containerRecord is what one container of a pod was granted.
type containerRecord struct {
	// Devices are the names of devices by resource, in the order in which they were chosen.
	Devices   map[string][]string `json:"devices"`
	Init      bool                `json:"init,omitempty"`
	GrantedAt time.Time           `json:"grantedAt"`
}

// with returns a copy of the record in which a container has what it is given here. Records are values that several
// goroutines read, so a change is always a new one.
func (p podRecord) with(container string, c containerRecord) podRecord {
	containers := map[string]containerRecord{container: c}
	for name, other := range p.Containers {
		if name != container {
			containers[name] = other
		}
	}
	p.Containers = containers
	return p
}

// held returns the devices of a resource that the pod has. own leaves out those that another container of the same pod
// may be given as well, because their holders have run to their end before it starts.
func (p podRecord) held(resource string, own bool) []string {
	var names []string
	for _, c := range p.Containers {
		if !own || !c.Init {
			names = append(names, c.Devices[resource]...)
		}
	}
	return names
}

// handedDown returns the devices of a resource that the pod's init containers had: the first choice for those after
// them, in a fixed order.
func (p podRecord) handedDown(resource string) []string {
	var names []string
	for _, c := range p.Containers {
		if c.Init {
			names = append(names, c.Devices[resource]...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ledger is the table of grants. It does not cache.
type ledger struct {
	table state.Table[podRecord]
}

func newLedger(db *state.DB) ledger { return ledger{state.NewTable[podRecord](db, tableName)} }

// load returns the records that can be read, by pod UID, and an error that names the others.
func (l ledger) load() (map[string]podRecord, error) { return l.table.List() }

func (l ledger) put(podUID string, rec podRecord) error { return l.table.Put(podUID, rec) }

func (l ledger) remove(podUID string) error { return l.table.Delete(podUID) }

// unreadable says whether the pod has a record and it cannot be read.
func (l ledger) unreadable(podUID string) bool {
	_, err := l.table.Get(podUID)
	return err != nil && !errors.Is(err, errdefs.ErrNotFound)
}
