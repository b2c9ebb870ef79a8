package records

import (
	"maps"

	"monopod.dev/monopod/internal/state"
)

// Unread is what is known to be stored and could not be read. What lives under such a key is not touched: its record may be repaired, or be
// read by the newer program that has written it.
type Unread struct {
	all  bool // it is not known which
	keys map[string]bool
}

// UnreadOf tells it by the error of a table's List.
func UnreadOf(table error) Unread {
	keys, only := state.Undecodable(table)
	return Unread{all: !only}.and(keys)
}

// With adds what the error of ReadCopies tells: the copies of a newer version, and no others. A copy that is damaged describes what its record
// in the table does, or what was never made.
func (u Unread) With(copies error) Unread { return u.and(newer(copies)) }

func (u Unread) and(keys []string) Unread {
	all := Unread{all: u.all, keys: maps.Clone(u.keys)}
	if all.keys == nil {
		all.keys = map[string]bool{}
	}
	for _, k := range keys {
		all.keys[k] = true
	}
	return all
}

// Has says that the key's record could not be read, or may be among those that could not.
func (u Unread) Has(key string) bool { return u.all || u.keys[key] }
