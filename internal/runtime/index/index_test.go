package index

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// TestOneOfMany: an index says what a scan of all pairs would, whatever has been added and removed, in whatever order, and holds nothing
// when all is removed.
func TestOneOfMany(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var o Of[int, string]
		have := map[int]map[string]bool{}
		agree := func(key int) {
			t.Helper()
			got := slices.Sorted(o.IDs(key))
			if want := slices.Sorted(maps.Keys(have[key])); !slices.Equal(got, want) || o.Len(key) != len(want) {
				t.Fatalf("seed %d: the key %d is that of %v, %d of them, want %v", seed, key, got, o.Len(key), want)
			}
		}
		for range 400 {
			key, id := rng.IntN(4), fmt.Sprint(rng.IntN(5))
			if rng.IntN(2) == 0 {
				o.Add(key, id)
				if have[key] == nil {
					have[key] = map[string]bool{}
				}
				have[key][id] = true
			} else {
				o.Remove(key, id)
				delete(have[key], id)
			}
			agree(key)
		}
		for key, ids := range have {
			agree(key)
			for id := range ids {
				o.Remove(key, id)
			}
		}
		if !reflect.DeepEqual(o, Of[int, string]{}) {
			t.Fatalf("seed %d: an index of nothing holds %v", seed, o)
		}
	}
}

// A loop over the ids may be left.
func TestIDsAreLeft(t *testing.T) {
	t.Parallel()
	var o Of[string, string]
	for _, id := range []string{"a", "b", "c"} {
		o.Add("k", id)
	}
	for leave := range 3 {
		n := 0
		for range o.IDs("k") {
			if n++; n > leave {
				break
			}
		}
		if n != leave+1 {
			t.Errorf("a loop that is left after %d ids has seen %d", leave+1, n)
		}
	}
}

func TestRarest(t *testing.T) {
	t.Parallel()
	var l Labels[string]
	all := map[string]map[string]string{
		"a": {"app": "web", "uid": "1"}, "b": {"app": "web", "uid": "2"}, "c": {"app": "web", "uid": "2", "empty": ""}, "d": nil,
	}
	for id, labels := range all {
		l.Add(labels, id)
	}
	for _, c := range []struct {
		selector map[string]string
		want     []string
	}{
		{map[string]string{"app": "web"}, []string{"a", "b", "c"}},
		{map[string]string{"app": "web", "uid": "1"}, []string{"a"}},
		{map[string]string{"app": "web", "uid": "2"}, []string{"b", "c"}},
		{map[string]string{"empty": ""}, []string{"c"}},
		{map[string]string{"app": "web", "uid": "3"}, nil},
		{map[string]string{"app": "web", "nobody's": ""}, nil},
	} {
		ids, ok := l.Rarest(c.selector)
		if got := slices.Sorted(ids); !ok || !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, %v, want %v", c.selector, got, ok, c.want)
		}
		for id, labels := range all {
			if Selects(c.selector, labels) && !slices.Contains(c.want, id) {
				t.Errorf("%v selects %s, which is not among the rarest", c.selector, id)
			}
		}
	}
	if _, ok := l.Rarest(nil); ok {
		t.Error("no selector has a rarest label")
	}
	for id, labels := range all {
		l.Remove(labels, id)
	}
	if !reflect.DeepEqual(l, Labels[string]{}) {
		t.Errorf("the labels of nobody are %v", l)
	}
}
