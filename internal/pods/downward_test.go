package pods

import "testing"

func TestSubscript(t *testing.T) {
	for path, want := range map[string][2]string{
		"metadata.labels['app']":           {"metadata.labels", "app"},
		"metadata.annotations['a.b/c[1]']": {"metadata.annotations", "a.b/c[1]"},
		"metadata.labels['']":              {"metadata.labels", ""},
		"metadata.labels":                  {},
		"metadata.labels['app'":            {},
		"metadata.labels[app]":             {},
	} {
		base, key, ok := Subscript(path)
		if base != want[0] || key != want[1] || ok != (want[0] != "") {
			t.Errorf("%s: %q, %q, %t", path, base, key, ok)
		}
	}
}
