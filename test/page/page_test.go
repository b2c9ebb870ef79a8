package page

import (
	"reflect"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	got, err := Read(`# A page

Not a block.

    apiVersion: v1
    $ not typed

Type:

    $ one
    $ two \
    >   three
    line

      indented line
    $ four

    more

    $ five
`)
	want := []Command{
		{Line: 10, Text: "one"}, {Line: 11, Text: "two \\\n  three", Shown: []string{"line", "  indented line"}}, {Line: 16, Text: "four", Shown: []string{"more"}},
		{Line: 20, Text: "five"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n%+v, want\n%+v", err, got, want)
	}
	if _, err := Read("\n    $ one\n    line\n    > two\n"); err == nil {
		t.Error("a command may go on after its output")
	}
}

func TestPrints(t *testing.T) {
	for name, c := range map[string]struct {
		shown, output string
		same          bool
	}{
		"the same":          {"a b\nc", "a b\nc\n", true},
		"nothing":           {"", "", true},
		"another":           {"a", "b\n", false},
		"less":              {"a\nb", "a\n", false},
		"more":              {"a", "a\nb\n", false},
		"columns":           {"NAME  AGE\nx     12s", "NAME    AGE\nx       3m2s\n", true},
		"a pod":             {"pod/web-5d7f9c6b8d-x2v9q", "pod/web-6c4b8f9d77-abcde\n", false},
		"another pod":       {"pod/web-5d7f9c6b8d-x2v9q", "pod/web-6c4b8f9d7-bcdfg\n", true},
		"addresses":         {"10.61.0.7:80", "10.200.3.17:80\n", true},
		"node ports":        {"80:30001/TCP", "80:32001/TCP\n", true},
		"ports":             {"80/TCP", "81/TCP\n", false},
		"a name":            {"store-a", "store-b\n", false},
		"any lines":         {"a\n...\nz", "a\nb\nc\nz\n", true},
		"no lines":          {"a\n...\nz", "a\nz\n", true},
		"lines, no end":     {"a\n...\nz", "a\nb\n", false},
		"any text":          {"a ... z", "a (b) z\n", true},
		"what is no regexp": {"a.c (x|y)", "abc x\n", false},
		"empty lines":       {"a\nb", "a\n\nb\n", true},
		"sizes":             {"5.2MB", "12.71 MB\n", true},
	} {
		var shown []string
		if c.shown != "" {
			shown = strings.Split(c.shown, "\n")
		}
		if err := (Command{Shown: shown}).Prints(c.output); (err == nil) != c.same {
			t.Errorf("%s: %v", name, err)
		}
	}
}
