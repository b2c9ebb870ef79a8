package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/storage/plan"
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func store(dir string) *Store {
	return New(dir, "n", tree.NewBin(filepath.Join(dir, tree.BinName), slog.New(slog.DiscardHandler)))
}

func record(name string) Record {
	return Record{Name: name, Volume: "pvc-1", Claim: plan.Claimant{Namespace: "a", Name: "c", UID: "1"}, Requested: resource.MustParse("1Gi"), Size: 1 << 30, Hold: plan.Nothing}
}

func drop(string) error { return nil }

// TestTheLifeOfASnapshot: it is there when all of it is, goes by its name, and not while somebody uses it.
func TestTheLifeOfASnapshot(t *testing.T) {
	s := store(t.TempDir())
	if all, odd, err := s.All(); err != nil || len(all)+len(odd) > 0 {
		t.Errorf("in no directory there is %v, %v, %v", all, odd, err)
	}
	must(t, s.Begin(record("s")))
	if err := s.Begin(record("s")); !errdefs.IsAlreadyExists(err) {
		t.Errorf("a second one of the name: %v", err)
	}
	if _, _, err := s.Use("s"); !errdefs.IsUnavailable(err) {
		t.Errorf("one that is being taken: %v", err)
	}
	must(t, s.Finish(record("s")))
	r, release, err := s.Use("s")
	if must(t, err); r.Phase != Ready || r.Node != "n" || r.Claim.String() != "a/c" {
		t.Errorf("it is %+v", r)
	}
	if err := s.Remove(t.Context(), "s", drop); !errdefs.IsUnavailable(err) {
		t.Errorf("removed while it is used: %v", err)
	}
	release()
	failed := errors.New("busy")
	if err := s.Remove(t.Context(), "s", func(string) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("what cannot be dropped: %v", err)
	}
	for _, name := range []string{"s", "none"} {
		if _, _, err := s.Use(name); !errdefs.IsNotFound(err) {
			t.Errorf("one that is not there: %v", err)
		}
		if err := s.Remove(t.Context(), name, drop); !errdefs.IsNotFound(err) {
			t.Errorf("one that is not there: %v", err)
		}
	}
	must(t, s.Sweep(t.Context(), func(Record) error { return nil }, drop))
	if left, err := os.ReadDir(s.dir); err != nil || len(left) > 0 {
		t.Errorf("there is left %v, %v", left, err)
	}
}

// TestWhatAKillLeaves goes at the next start, and nothing else.
func TestWhatAKillLeaves(t *testing.T) {
	s := store(t.TempDir())
	taking, temporary, whole := record("taking"), record(".export-x"), record("whole")
	temporary.Temporary = true
	for _, r := range []Record{taking, temporary, whole} {
		must(t, s.Begin(r), os.Mkdir(filepath.Join(s.Path(r.Name), "data"), 0o700))
	}
	must(t, s.Finish(temporary), s.Finish(whole))
	must(t, os.Mkdir(s.Path("empty"), 0o700), os.MkdirAll(filepath.Join(s.Path("unknown"), "data"), 0o700))
	others := strings.ReplaceAll(string(mustRead(t, filepath.Join(s.Path("whole"), file))), `"whole"`, `"others"`)
	must(t, os.Mkdir(s.Path("others"), 0o700), os.WriteFile(filepath.Join(s.Path("others"), file), []byte(strings.ReplaceAll(others, `"node": "n"`, `"node": "m"`)), 0o600))
	var left []string
	must(t, s.Sweep(context.Background(), func(r Record) error { left = append(left, r.Name); return nil }, drop))
	if strings.Join(left, " ") != ".export-x taking" {
		t.Errorf("left is %v", left)
	}
	all, odd, err := s.All()
	if err != nil || len(all) != 1 || all[0].Name != "whole" || len(odd) != 2 || odd["unknown"] == nil || odd["others"] == nil {
		t.Errorf("there is %v, %v, %v", all, odd, err)
	}
	must(t, s.Begin(record("empty"))) // as a kill leaves it before the record is there
	if of, err := s.Of(); err != nil || !reflect.DeepEqual(of, map[string][]string{"pvc-1": {"whole"}}) {
		t.Errorf("the snapshots are %v, %v", of, err)
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	must(t, err)
	return raw
}

func TestNames(t *testing.T) {
	for name, right := range map[string]bool{"before-upgrade": true, "a.b": true, "": false, ".": false, "..": false, "a/b": false, "A": false, ".gone-x": false, strings.Repeat("a", 201): false} {
		if err := CheckName(name); (err == nil) != right || err != nil && !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestTheRecord: what is written is read, every field of it.
func TestTheRecord(t *testing.T) {
	want := Record{
		Version: 1, Name: "s", Phase: Ready, Temporary: true, Node: "n", Volume: "v", Claim: plan.Claimant{Namespace: "a", Name: "c", UID: "u"}, Class: "l",
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Requested: resource.MustParse("1Gi"), Size: 2, Hold: plan.Qgroup, Block: true, Taken: time.Unix(1, 0).UTC(), AtOnce: true,
	}
	for i := range reflect.TypeFor[Record]().NumField() {
		if reflect.ValueOf(want).Field(i).IsZero() {
			t.Errorf("set the field %s in this test", reflect.TypeFor[Record]().Field(i).Name)
		}
	}
	raw, err := json.Marshal(want)
	const golden = `{"version":1,"name":"s","phase":"ready","temporary":true,"node":"n","volume":"v","claim":{"namespace":"a","name":"c","uid":"u"},"class":"l",` +
		`"accessModes":["ReadWriteOnce"],"requested":"1Gi","size":2,"hold":"qgroup","block":true,"taken":"1970-01-01T00:00:01Z","atOnce":true}`
	if err != nil || string(raw) != golden {
		t.Errorf("written as %s, %v", raw, err)
	}
	var got Record
	must(t, json.Unmarshal([]byte(golden), &got))
	if again, err := json.Marshal(got); err != nil || string(again) != golden || got.Check("s", "n") != nil {
		t.Errorf("read as %s, %v, %v", again, err, got.Check("s", "n"))
	}
}
