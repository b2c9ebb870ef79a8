//go:build cgo

package record

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"monopod.dev/monopod/internal/executor/journal"
)

// What is stored comes back: each field of the records survives encoding.
func TestRecordsAreSerializable(t *testing.T) {
	for _, v := range []any{&Record{}, &journal.Exit{}} {
		fill(t, reflect.ValueOf(v).Elem(), 1)
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		back := reflect.New(reflect.TypeOf(v).Elem())
		if err := json.Unmarshal(raw, back.Interface()); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(v, back.Interface()) {
			t.Errorf("%T: %+v came back, want %+v", v, back.Interface(), v)
		}
	}
}

// TestFileOfVersion1: what an executor of another build has written is read as it was meant, and nothing of it is lost when it is written again. The file is
// never to be changed: a worker goes on from it, of whatever build it is.
func TestFileOfVersion1(t *testing.T) {
	golden, err := os.ReadFile(filepath.Join("testdata", "record-1.json"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(filepath.Dir(s.File("a", "x")), 0o700), os.WriteFile(s.File("a", "record.json"), golden, 0o600)); err != nil {
		t.Fatal(err)
	}
	recs, errs := s.Load()
	if len(errs) > 0 || len(recs) != 1 || Check(dir) != nil {
		t.Fatalf("loaded %d records, %v, %v", len(recs), errs, Check(dir))
	}
	r := recs[0]
	if r.ID != "a" || r.Stage != StageRunning || r.PID != 21 || r.StartTime != 22 || r.Runtime.Path != "/usr/bin/runc" || r.Pipes["stdout"] != 23 || !r.LogFixed || !r.Spawned || !r.Adopted {
		t.Errorf("read as %+v", r)
	}
	if g := r.Group(); g.Dirs[""] != "/sys/fs/cgroup/kubepods/p/a" || g.Scope == nil {
		t.Errorf("its cgroups: %+v", g)
	}
	if raw, err := json.Marshal(r); err != nil || string(raw) != strings.TrimSpace(string(golden)) {
		t.Errorf("written again as\n%s, %v, want\n%s", raw, err, golden)
	}
	// One of a later version is refused, by its name.
	r.ID = "b"
	if err := s.Put(r); err != nil {
		t.Fatal(err)
	}
	later := []byte(strings.Replace(string(golden), `"version":1`, `"version":99`, 1))
	if err := os.WriteFile(s.File("b", "record.json"), later, 0o600); err != nil {
		t.Fatal(err)
	}
	if recs, errs := s.Load(); len(recs) != 1 || len(errs) != 1 || Check(dir) == nil {
		t.Errorf("loaded %d records, %v, %v; want one refused", len(recs), errs, Check(dir))
	}
}

// fill sets every field to something that is not zero.
func fill(t *testing.T, v reflect.Value, n int64) {
	t.Helper()
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Unix(n, n).UTC()))
		return
	}
	if v.Type() == reflect.TypeFor[specs.LinuxResources]() { // made to be stored, by others
		v.Set(reflect.ValueOf(specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "1"}, HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB"}}}))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() {
				t.Fatalf("%s.%s is not exported: it would not be stored", v.Type(), v.Type().Field(i).Name)
			}
			fill(t, v.Field(i), n+int64(i)+1)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), n)
	case reflect.String:
		v.SetString("s" + time.Duration(n).String())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(n)
	case reflect.Uint64:
		v.SetUint(uint64(n))
	case reflect.Map:
		key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key, n)
		fill(t, elem, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, elem)
	default:
		t.Fatalf("a field of kind %s: teach this test, and think whether it can be stored", v.Kind())
	}
}
