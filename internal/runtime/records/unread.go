package records

import "monopod.dev/monopod/internal/state"

// Unread is what a table is known to hold and what could not be read. What lives under such a key is not touched: its record may be
// repaired.
type Unread struct {
	all  bool // it is not known which
	keys map[string]bool
}

// UnreadOf tells it by the error of a table's List.
func UnreadOf(err error) Unread {
	keys, only := state.Undecodable(err)
	u := Unread{all: !only, keys: map[string]bool{}}
	for _, k := range keys {
		u.keys[k] = true
	}
	return u
}

// Has says that the key's record could not be read, or may be among those that could not.
func (u Unread) Has(key string) bool { return u.all || u.keys[key] }
