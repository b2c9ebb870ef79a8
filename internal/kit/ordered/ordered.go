// Package ordered goes through maps in the order of their keys, so that what is made of them is the same each time.
package ordered

import (
	"cmp"
	"iter"
	"maps"
	"slices"
)

// Map ranges over a map in the order of its keys.
func Map[K cmp.Ordered, V any](m map[K]V) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}
