package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/agent/userns"
)

func TestIDs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pods")
	m := New(Config{Dir: dir})
	ids := func(uid types.UID) userns.Range {
		t.Helper()
		r, err := m.IDs(t.Context(), uid)
		if err != nil || r.Length != userns.Length {
			t.Fatalf("%s: %+v, %v", uid, r, err)
		}
		return r
	}
	a, b := ids("a"), ids("b")
	if a == b || ids("a") != a {
		t.Errorf("a has %+v, then %+v; b has %+v", a, ids("a"), b)
	}
	m = New(Config{Dir: dir}) // another process
	if ids("b") != b || ids("a") != a {
		t.Error("they are not kept")
	}
	if err := os.MkdirAll(filepath.Join(dir, "plain", "volumes"), 0o750); err != nil { // it has none
		t.Fatal(err)
	}
	c := ids("c")
	if c == a || c == b {
		t.Errorf("c has %+v as well", c)
	}
	// A pod that has finished keeps its own: its containers' files are still there. One that is gone does not.
	if err := m.Release(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if d := ids("d"); d == a {
		t.Errorf("d has what is still the finished pod's: %+v", d)
	}
	if err := m.Remove(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if e := ids("e"); e != a {
		t.Errorf("e has %+v, want that of the pod that is gone: %+v", e, a)
	}
	if _, err := m.IDs(t.Context(), "../x"); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("a UID that is a path: %v", err)
	}
}

// Of pods that come at once each gets its own.
func TestIDsAtOnce(t *testing.T) {
	m := New(Config{Dir: t.TempDir()})
	all := make([]userns.Range, 20)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			r, err := m.IDs(t.Context(), types.UID(fmt.Sprint("pod", i)))
			if err != nil {
				t.Error(err)
			}
			all[i] = r
		})
	}
	wg.Wait()
	seen := map[userns.Range]bool{}
	for _, r := range all {
		seen[r] = true
	}
	if len(seen) != len(all) {
		t.Errorf("%d ranges for %d pods", len(seen), len(all))
	}
}

// What cannot be read may be any range: nobody else gets one then, but who has one keeps it.
func TestIDsThatCannotBeRead(t *testing.T) {
	m := New(Config{Dir: t.TempDir()})
	a, err := m.IDs(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.idsFile("a"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []types.UID{"a", "b"} {
		if _, err := m.IDs(t.Context(), uid); !errors.Is(err, errdefs.ErrDataLoss) || !strings.Contains(err.Error(), m.idsFile("a")) {
			t.Errorf("%s: %v", uid, err)
		}
	}
	if err := m.Remove(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if b, err := m.IDs(t.Context(), "b"); err != nil || b != a {
		t.Errorf("%+v, %v", b, err)
	}
}

// Records that are lost are made again from what the runtime tells, once, before anybody gets what another pod has.
func TestIDsOfTheRuntime(t *testing.T) {
	first, err := New(Config{Dir: t.TempDir()}).IDs(t.Context(), "any")
	if err != nil {
		t.Fatal(err)
	}
	next := userns.Range{First: first.First + first.Length, Length: first.Length}
	asked, fails := 0, errors.New("it does not answer")
	m := New(Config{Dir: t.TempDir(), HeldIDs: func(context.Context) (map[types.UID]userns.Range, error) {
		asked++
		return map[types.UID]userns.Range{"old": first, "kept": first}, fails
	}})
	if err := m.recordIDs("kept", next); err != nil {
		t.Fatal(err)
	}
	if _, err := m.IDs(t.Context(), "new"); !errors.Is(err, fails) {
		t.Errorf("chosen without knowing: %v", err)
	}
	if r, err := m.IDs(t.Context(), "kept"); r != next || err != nil || asked != 1 {
		t.Errorf("what is on record: %+v, %v, asked %d times", r, err, asked)
	}
	fails = nil
	for range 2 {
		for uid, want := range map[types.UID]userns.Range{"old": first, "kept": next, "new": {First: next.First + next.Length, Length: next.Length}} {
			if r, err := m.IDs(t.Context(), uid); r != want || err != nil {
				t.Errorf("%s: %+v, %v; want %+v", uid, r, err, want)
			}
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}
