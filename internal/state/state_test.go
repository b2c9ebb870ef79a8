package state

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
)

type record struct{ Name string }

func openAt(t *testing.T, cfg Config) (*DB, string) {
	t.Helper()
	db, damaged, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db, damaged
}

func TestTableSurvivesReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "state.db")
	db, _ := openAt(t, Config{Path: path})
	tab := NewTable[record](db, "things")
	if _, err := tab.Get("a"); !errdefs.IsNotFound(err) {
		t.Fatalf("Get of nothing: %v, want not found", err)
	}
	if err := tab.Put("a", record{"one"}); err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Modify("a", func(r *record) error { r.Name += "!"; return nil }); err != nil {
		t.Fatal(err)
	}
	stop := errors.New("stop")
	if err := db.Update(func(tx *Tx) error {
		if err := tab.PutTx(tx, "b", record{"two"}); err != nil {
			return err
		}
		return stop
	}); !errors.Is(err, stop) {
		t.Fatalf("Update: %v", err)
	}
	db.Close()

	db, _ = openAt(t, Config{Path: path})
	all, err := NewTable[record](db, "things").List()
	if err != nil || len(all) != 1 || all["a"].Name != "one!" {
		t.Fatalf("List after reopening: %v, %v", all, err)
	}
}

func TestOneBadRecordSpoilsNobodyElse(t *testing.T) {
	db, _ := openAt(t, Config{Path: filepath.Join(t.TempDir(), "state.db")})
	tab := NewTable[record](db, "things")
	if err := tab.Put("good", record{"g"}); err != nil {
		t.Fatal(err)
	}
	if err := db.bolt.Update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("things")).Put([]byte("bad"), []byte("{"))
	}); err != nil {
		t.Fatal(err)
	}
	all, err := tab.List()
	if len(all) != 1 || all["good"].Name != "g" {
		t.Errorf("List: %v, want the good record", all)
	}
	if err == nil || !strings.Contains(err.Error(), `"bad"`) {
		t.Errorf("List: error %v does not name the bad record", err)
	}
	if keys, only := Undecodable(err); len(keys) != 1 || keys[0] != "bad" || !only {
		t.Errorf("undecodable: %q, nothing else: %t", keys, only)
	}
	if keys, only := Undecodable(errors.Join(err, errors.New("disk"))); len(keys) != 1 || only {
		t.Errorf("undecodable beside another fault: %q, nothing else: %t", keys, only)
	}
}

func TestDamagedFileIsSetAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	garbage := []byte(strings.Repeat("no database ", 4096))
	if err := os.WriteFile(path, garbage, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(Config{Path: path}); err == nil {
		t.Fatal("a damaged file was opened")
	}
	_, damaged := openAt(t, Config{Path: path, SetAside: true})
	if got, err := os.ReadFile(damaged); err != nil || string(got) != string(garbage) {
		t.Fatalf("the damaged file was not kept at %q: %v", damaged, err)
	}
}

func TestNewerVersionIsRefusedAndKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db, _ := openAt(t, Config{Path: path})
	if err := db.bolt.Update(func(tx *bolt.Tx) error {
		return tx.Bucket(metaBucket).Put(versionKey, []byte("99"))
	}); err != nil {
		t.Fatal(err)
	}
	db.Close()
	if _, _, err := Open(Config{Path: path, SetAside: true}); err == nil || !strings.Contains(err.Error(), "99") {
		t.Fatalf("a file of version 99: %v", err)
	}
}

func TestLockedFileNamesTheCause(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	openAt(t, Config{Path: path})
	if _, _, err := Open(Config{Path: path, LockTimeout: 1}); !errors.Is(err, ErrLocked) {
		t.Fatalf("second Open: %v, want ErrLocked", err)
	}
}

// Read-only, nothing is made and nothing is changed.
func TestReadOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none", "state.db")
	if _, _, err := Open(Config{Path: path, ReadOnly: true}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(path)); !os.IsNotExist(err) {
		t.Errorf("its directory was made: %v", err)
	}
	db, _, err := Open(Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := NewTable[string](db, "words").Put("a", "b"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(Config{Path: path, ReadOnly: true, LockTimeout: time.Millisecond}); !errors.Is(err, ErrLocked) {
		t.Errorf("a file in use: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ro, _, err := Open(Config{Path: path, ReadOnly: true, SetAside: true})
	if err != nil {
		t.Fatal(err)
	}
	words := NewTable[string](ro, "words")
	if got, err := words.Get("a"); err != nil || got != "b" {
		t.Errorf("read %q, %v", got, err)
	}
	if words.Put("a", "c") == nil {
		t.Error("it was written to")
	}
	if err := ro.Close(); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file has changed: %v", err)
	}
	// A damaged file is not set aside.
	if err := os.WriteFile(path, make([]byte, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, damaged, err := Open(Config{Path: path, ReadOnly: true, SetAside: true}); err == nil || damaged != "" {
		t.Errorf("a damaged file: %q, %v", damaged, err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}
