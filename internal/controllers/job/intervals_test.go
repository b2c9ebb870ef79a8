package job

import (
	"maps"
	"slices"
	"testing"
)

func TestIndexes(t *testing.T) {
	for text, want := range map[string]string{"": "", "0": "0", "1,3-5,7": "1,3-5,7", "3,4": "3,4", "3-4": "3,4", "0-2,3": "0-3", "8-12": "8,9", "12": "", "5-3,a,2-,-1,4": "4"} {
		if got := parseIndexes(text, 10).String(); got != want {
			t.Errorf("%q is read as %q, want %q", text, got, want)
		}
	}
}

// FuzzIndexes: what was read of any text is what is written of it, and sets of indexes do as sets of numbers would.
func FuzzIndexes(f *testing.F) {
	f.Add("1,3-5,7", "0,4-9")
	f.Add("", "2-,5-1,3,3")
	f.Add("99-1000", "9223372036854775807-9223372036854775808")
	f.Fuzz(func(t *testing.T, a, b string) {
		const completions = 100
		x, y := parseIndexes(a, completions), parseIndexes(b, completions)
		set := func(x indexes) map[int]bool {
			all := map[int]bool{}
			for i := range completions {
				if x.has(i) {
					all[i] = true
				}
			}
			return all
		}
		if again := parseIndexes(x.String(), completions); !slices.Equal(again, x) {
			t.Errorf("%q is read as %v, which is written as %q and read as %v", a, x, x, again)
		}
		xs, ys := set(x), set(y)
		if x.count() != len(xs) || !slices.Equal(indexesOf(xs), x) {
			t.Errorf("%v has %d indexes: %v", x, x.count(), xs)
		}
		common := 0
		for i := range xs {
			if ys[i] {
				common++
			}
		}
		if got := x.common(y); got != common {
			t.Errorf("%v and %v have %d in common, want %d", x, y, got, common)
		}
		for _, i := range x.missing(completions, completions) {
			if xs[i] {
				t.Errorf("%v is said not to have %d", x, i)
			}
		}
		if got := len(x.missing(completions, completions)) + x.count(); got != completions {
			t.Errorf("%v has, and has not, %d indexes", x, got)
		}
		maps.Copy(xs, ys)
		if got := x.with(y); !slices.Equal(got, indexesOf(xs)) {
			t.Errorf("%v with %v are %v, want %v", x, y, got, indexesOf(xs))
		}
	})
}
