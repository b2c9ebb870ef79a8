package volatilefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type doc struct {
	Stage string
	Note  string `json:",omitempty"`
}

func TestLastOneCounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record.json")
	for _, stage := range []string{"one", "two", "three"} {
		if err := Write(path, doc{Stage: stage}); err != nil {
			t.Fatal(err)
		}
		var got doc
		if err := Read(path, &got); err != nil || got.Stage != stage {
			t.Errorf("read %+v, %v; want %s", got, err, stage)
		}
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

func TestStaysSmall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record.json")
	note := strings.Repeat("x", 10<<10)
	for range 100 {
		if err := Write(path, doc{"big", note}); err != nil {
			t.Fatal(err)
		}
		var got doc
		if err := Read(path, &got); err != nil || got.Note != note {
			t.Fatal(err)
		}
	}
	if st, err := os.Stat(path); err != nil || st.Size() > 2*large {
		t.Errorf("it has grown to %d bytes, %v", st.Size(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".tmp-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestKilledWriter: a write was cut off at each of its bytes.
func TestKilledWriter(t *testing.T) {
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	for _, stage := range []string{"old", "new"} {
		if err := Write(whole, doc{Stage: stage}); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(raw) + 1 {
		path := filepath.Join(dir, "cut")
		if err := os.WriteFile(path, raw[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		var got doc
		err := Read(path, &got)
		switch {
		case n < len(raw)/2 && !errors.Is(err, fs.ErrNotExist):
			t.Errorf("%d bytes: %+v, %v; want that there is none", n, got, err)
		case n >= len(raw)/2 && n < len(raw) && (err != nil || got.Stage != "old"):
			t.Errorf("%d bytes: %+v, %v; want the old", n, got, err)
		case n == len(raw) && (err != nil || got.Stage != "new"):
			t.Errorf("%d bytes: %+v, %v; want the new", n, got, err)
		}
		if err := Write(path, doc{Stage: "next"}); err != nil {
			t.Fatal(err)
		}
		if err := Read(path, &got); err != nil || got.Stage != "next" {
			t.Errorf("written after %d bytes: %+v, %v", n, got, err)
		}
	}
}

func TestReadsOtherForms(t *testing.T) {
	for name, c := range map[string]struct {
		raw, want string
		fault     bool
	}{
		"one document, as earlier versions wrote it": {`{"Stage":"one"}`, "one", false},
		"and one of this version behind it":          {`{"Stage":"one"}` + "\n" + `{"Stage":"two"}` + "\n", "two", false},
		"a killed writer before the last":            {"\n{\"Stage\":\"one\"}\n\n{\"Sta\n{\"Stage\":\"two\"}\n", "two", false},
		"a killed writer's part is last":             {"\n{\"Stage\":\"one\"}\n\n{\"Sta\n", "one", false},
		"damaged":                                    {`{`, "", true},
		"damaged lines":                              {"\nrubbish\n\nrubbish\n", "", true},
		"another type":                               {"\n{\"Stage\":7}\n", "", true},
	} {
		path := filepath.Join(t.TempDir(), "record.json")
		if err := os.WriteFile(path, []byte(c.raw), 0o600); err != nil {
			t.Fatal(err)
		}
		var got doc
		err := Read(path, &got)
		if fault := err != nil && !errors.Is(err, fs.ErrNotExist); fault != c.fault || !fault && got.Stage != c.want {
			t.Errorf("%s: read %+v, %v", name, got, err)
		}
	}
}
