package relist

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Item is a sandbox or a container as a list shows it.
type Item struct {
	// UID is its pod's.
	UID types.UID
	// State is CRI's number.
	State int32
	// Telling: that it is in this state is an event's: a container that runs, or has ended.
	Telling bool
}

// List is what one list has shown, by the id of sandbox or container.
type List map[string]Item

// Diff compares a list with the one before it: changed are the pods of which anything is different, and telling those of them of which an event had to
// tell. Both are sorted.
func Diff(before, now List) (changed, telling []types.UID) {
	all, told := map[types.UID]bool{}, map[types.UID]bool{}
	for id, item := range now {
		if old, was := before[id]; was && old == item {
			continue
		}
		all[item.UID] = true
		if item.Telling {
			told[item.UID] = true
		}
	}
	for id, item := range before {
		if _, is := now[id]; !is {
			all[item.UID] = true
		}
	}
	return slices.Sorted(maps.Keys(all)), slices.Sorted(maps.Keys(told))
}
