package fsck

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod.dev/monopod/internal/fsck"
	imagefsck "monopod.dev/monopod/internal/image/fsck"
	"monopod.dev/monopod/internal/state"
)

// TestRecordsOfANewerVersion: what a newer program has made is told, and nothing of it is to be removed, be it known by a record or by its copy
// only.
func TestRecordsOfANewerVersion(t *testing.T) {
	o := Options{DataDir: t.TempDir(), RunDir: t.TempDir()}
	var err error
	if o.Images, err = imagefsck.Check(t.Context(), imagefsck.Options{Root: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	const newer = `{"version":1000,"id":"x"}`
	db, _, err := state.Open(state.Config{Path: Database(o.DataDir)})
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"containers", "sandboxes"} {
		if err := state.NewTable[json.RawMessage](db, table).Put("stored", json.RawMessage(newer)); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"stored", "copied", "strange"} {
			dir := filepath.Join(o.RunDir, table, id)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if id == "copied" {
				if err := os.WriteFile(filepath.Join(dir, "record.json"), []byte(newer+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	found, err := Check(o)
	if err != nil {
		t.Fatal(err)
	}
	told, removed := 0, []string{}
	for _, f := range found.Findings {
		if strings.Contains(f.Problem, "version 1000") {
			told++
		}
		if f.Fix.Action == fsck.RemoveFolder {
			removed = append(removed, f.Fix.Target)
		}
	}
	if told != 4 || len(removed) != 2 || filepath.Base(removed[0]) != "strange" || filepath.Base(removed[1]) != "strange" {
		t.Errorf("told of %d, would remove %v: %+v", told, removed, found.Findings)
	}
}
