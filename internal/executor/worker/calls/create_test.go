//go:build cgo

package calls

import (
	"strings"
	"testing"
)

func TestValidID(t *testing.T) {
	for id, want := range map[string]bool{"a": true, "A-b_c.d+e9": true, "": false, ".": false, "..": false, "-a": false,
		"a/b": false, "a b": false, "ä": false, strings.Repeat("x", 128): true, strings.Repeat("x", 129): false} {
		if validID(id) != want {
			t.Errorf("%q: %t, want %t", id, !want, want)
		}
	}
}
