package devices

import (
	"monopod.dev/monopod/internal/devices/book"
	"monopod.dev/monopod/internal/state"
)

// tableName is the ledger's table in the state database. Its key is a pod's UID.
const tableName = "deviceGrants"

// ledger is the table of grants. It does not cache.
type ledger struct {
	table state.Table[book.Record]
}

func newLedger(db *state.DB) ledger { return ledger{state.NewTable[book.Record](db, tableName)} }

// load returns the records that can be read, by pod UID, and what is wrong with the others; under an empty UID, what is wrong with all of them.
func (l ledger) load() (recs map[string]book.Record, unreadable map[string]error) {
	recs, err := l.table.List()
	unreadable = map[string]error{}
	if err == nil {
		return recs, unreadable
	}
	keys, all := state.Undecodable(err)
	for _, k := range keys {
		unreadable[k] = err
	}
	if !all {
		unreadable[""] = err
	}
	return recs, unreadable
}

func (l ledger) put(podUID string, rec book.Record) error { return l.table.Put(podUID, rec) }

func (l ledger) remove(podUID string) error { return l.table.Delete(podUID) }
