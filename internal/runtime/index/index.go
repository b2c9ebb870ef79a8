// Package index finds records by what they have in common, without a look at all of them.
//
// An index holds ids and nothing else. Who holds the records changes it where records change, under the same lock: the indexes here
// are not safe for concurrent use. Their zero values are empty and usable, and what is empty again is as at the begin: a key that no
// record has any more costs nothing.
package index

import (
	"iter"
)

// Of maps keys to the ids, of one kind, of the records that have them.
type Of[K comparable, ID ~string] struct{ groups map[K]group[ID] }

// group are the ids of one key. Most keys are one record's alone, such as the UID of a pod, so that the first id needs no map.
type group[ID ~string] struct {
	one  ID
	more map[ID]struct{} // without one; nil: none
}

// Add says that the record has the key. It is idempotent.
func (o *Of[K, ID]) Add(key K, id ID) {
	g, ok := o.groups[key]
	switch {
	case !ok:
		g.one = id
	case g.one == id:
		return
	case g.more == nil:
		g.more = map[ID]struct{}{id: {}}
	default:
		g.more[id] = struct{}{}
		return
	}
	if o.groups == nil {
		o.groups = map[K]group[ID]{}
	}
	o.groups[key] = g
}

// Remove says that the record has the key no more. It is idempotent.
func (o *Of[K, ID]) Remove(key K, id ID) {
	g, ok := o.groups[key]
	if !ok {
		return
	}
	if g.one == id {
		g.one = ""
		for next := range g.more {
			g.one = next
			break
		}
		if len(g.more) == 0 {
			delete(o.groups, key)
			if len(o.groups) == 0 {
				o.groups = nil
			}
			return
		}
		id = g.one // it is in more no more
	}
	if delete(g.more, id); len(g.more) == 0 {
		g.more = nil
	}
	o.groups[key] = g
}

// Len is how many records have the key.
func (o *Of[K, ID]) Len(key K) int {
	g, ok := o.groups[key]
	if !ok {
		return 0
	}
	return 1 + len(g.more)
}

// IDs are those of the records that have the key, each once, in no order. The index must not be changed meanwhile.
func (o *Of[K, ID]) IDs(key K) iter.Seq[ID] {
	return func(yield func(ID) bool) {
		g, ok := o.groups[key]
		if !ok || !yield(g.one) {
			return
		}
		for id := range g.more {
			if !yield(id) {
				return
			}
		}
	}
}

// Labels finds records by labels.
type Labels[ID ~string] struct{ by Of[label, ID] }

type label struct{ name, value string }

// Add says that the record has the labels.
func (l *Labels[ID]) Add(labels map[string]string, id ID) {
	for name, value := range labels {
		l.by.Add(label{name, value}, id)
	}
}

// Remove says that the record, which had the labels, is gone.
func (l *Labels[ID]) Remove(labels map[string]string, id ID) {
	for name, value := range labels {
		l.by.Remove(label{name, value}, id)
	}
}

// Rarest are the records that have the rarest of the labels which a selector asks for: those that it selects are among them. A
// selector that asks for none is no use here, and ok is false.
func (l *Labels[ID]) Rarest(selector map[string]string) (ids iter.Seq[ID], ok bool) {
	var rarest label
	fewest := -1
	for name, value := range selector {
		if n := l.by.Len(label{name, value}); fewest < 0 || n < fewest {
			rarest, fewest = label{name, value}, n
		}
	}
	return l.by.IDs(rarest), fewest >= 0
}

// Selects says whether labels have all that a selector asks for.
func Selects(selector, labels map[string]string) bool {
	for name, value := range selector {
		if got, ok := labels[name]; !ok || got != value {
			return false
		}
	}
	return true
}
