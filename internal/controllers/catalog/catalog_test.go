package catalog

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestChoice(t *testing.T) {
	for choice, want := range map[string]string{
		"*":                            "binder namespace garbage-collector",
		"":                             "",
		"binder":                       "binder",
		"*,-namespace":                 "binder garbage-collector",
		"-namespace,*":                 "binder garbage-collector",
		"-namespace":                   "",
		"binder,-binder":               "binder",
		"*,-binder,binder":             "namespace garbage-collector",
		"namespace,garbage-collector":  "namespace garbage-collector",
		"*,-garbage-collector,-binder": "namespace",
	} {
		var got []string
		for _, name := range []string{Binder, Namespace, GarbageCollector} {
			if Chosen(name, strings.Split(choice, ",")) {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q runs %v, want %q", choice, got, want)
		}
	}
}

// TestPage: the table of docs/CONTROLLERS.md tells of every controller once, and of no other.
func TestPage(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "CONTROLLERS.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(raw), "\n| name | what it does | in upstream |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var told []string
	for row := range strings.Lines(table) {
		cell, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " |")
		told = append(told, strings.Split(cell, ", ")...)
	}
	slices.Sort(told)
	if want := slices.Sorted(slices.Values(Names())); !slices.Equal(told, want) {
		t.Errorf("docs/CONTROLLERS.md tells of\n%v, want\n%v", told, want)
	}
}
