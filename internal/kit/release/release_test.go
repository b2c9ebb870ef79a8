package release

import "testing"

func TestVersions(t *testing.T) {
	for s, want := range map[string]Version{"4.8": {4, 8}, "6.1.0-18-cloud-amd64": {6, 1}, "5.10.0": {5, 10}, "10.0-rc1": {10, 0}} {
		if v, err := Parse(s); err != nil || v != want {
			t.Errorf("%q: %v, %v", s, v, err)
		}
	}
	for _, s := range []string{"", "linux", "6", ".1", "v6.1"} {
		if v, err := Parse(s); err == nil {
			t.Errorf("%q is taken for %v", s, v)
		}
	}
	for _, c := range []struct {
		a, b   Version
		before bool
	}{{Version{4, 8}, Version{4, 10}, true}, {Version{4, 10}, Version{4, 8}, false}, {Version{4, 20}, Version{5, 0}, true}, {Version{5, 3}, Version{5, 3}, false}} {
		if c.a.Before(c.b) != c.before {
			t.Errorf("%s before %s: %v", c.a, c.b, !c.before)
		}
	}
}
