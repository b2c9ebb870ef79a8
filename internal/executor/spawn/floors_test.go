//go:build cgo

package spawn

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var include = regexp.MustCompile(`(?m)^#include "(\w+)\.h"$`)

// TestFilesCallDown: no file of C calls, by however many others, one that calls it. What a file has of another is in the other's header, and
// the compiler takes no function that no header has named.
func TestFilesCallDown(t *testing.T) {
	paths, err := filepath.Glob("*.c")
	if err != nil || len(paths) < 2 {
		t.Fatalf("%q, %v", paths, err)
	}
	calls := map[string][]string{}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		own := strings.TrimSuffix(path, ".c")
		calls[own] = []string{}
		for _, m := range include.FindAllStringSubmatch(string(raw), -1) {
			if m[1] != own {
				calls[own] = append(calls[own], m[1])
			}
		}
	}
	var visit func(file string, way []string)
	visit = func(file string, way []string) {
		if slices.Contains(way, file) {
			t.Fatalf("a circle: %s", strings.Join(append(way, file), " -> "))
		}
		for _, next := range calls[file] {
			visit(next, append(way, file))
		}
	}
	for file := range calls {
		visit(file, nil)
	}
	if got := calls["tell"]; !slices.Equal(got, []string{"plan"}) {
		t.Errorf("tell.c, which all others call, includes %q", got)
	}
}
