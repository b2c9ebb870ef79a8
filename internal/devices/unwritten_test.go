package devices

import (
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/state"
)

// effectless is a source as CDI is: what it says need not be on record before it is asked.
type effectless struct{ benchSource }

func (*effectless) PreparesWithoutEffect() {}

func newEffectless(t *testing.T, names ...string) (*Manager, *state.DB) {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	src := &effectless{}
	src.set(names...)
	db := open(t, filepath.Join(t.TempDir(), "agent.db"))
	m := settledManager(t, db, src)
	t.Cleanup(func() {
		m.behind.pending.Wait()
		goleak.VerifyNone(t, ignore)
	})
	return m, db
}

// TestAContainerWaitsForTheDiskAndItsPodDoesNot: what nobody else is asked for is admitted before the disk has it, and nobody's but the pod's.
func TestAContainerWaitsForTheDiskAndItsPodDoesNot(t *testing.T) {
	m, _ := newEffectless(t, "w0")
	var written atomic.Bool
	slow := make(chan struct{})
	defer failpoint.Arm("devices/grant/before-persist", func() error { <-slow; return nil })()
	admit(t, m, request("a", "c", 1))
	notReady(t, m, request("b", "c", 1), "1 wanted, 0 free (of 1, 1 in use)")
	if g := m.Grants(); len(g) != 0 {
		t.Errorf("told before it is on record: %+v", g)
	}
	got := make(chan error, 1)
	go func() {
		_, err := m.Grant(t.Context(), request("a", "c", 1).container("c"))
		if !written.Load() {
			err = errors.Join(err, errors.New("granted before the disk had it"))
		}
		got <- err
	}()
	written.Store(true)
	close(slow)
	if err := <-got; err != nil {
		t.Error(err)
	}
	if g := m.Grants(); len(g) != 1 {
		t.Errorf("grants %+v", g)
	}
}

// TestADiskThatFailsAfterTheAdmission: no container starts before the record is on disk, and the device is nobody else's meanwhile.
func TestADiskThatFailsAfterTheAdmission(t *testing.T) {
	m, db := newEffectless(t, "w0")
	disarm := failpoint.Arm("devices/grant/before-persist", func() error { return errors.New("disk gone") })
	a, b := request("a", "c", 1), request("b", "c", 1)
	admit(t, m, a)
	if _, err := m.Grant(t.Context(), a.container("c")); err == nil || !strings.Contains(err.Error(), "disk gone") {
		t.Errorf("granted with %v", err)
	}
	notReady(t, m, b, "1 wanted, 0 free (of 1, 1 in use)")
	if _, err := m.Admit(t.Context(), a); err == nil || !strings.Contains(err.Error(), "disk gone") {
		t.Errorf("admitted again with %v", err)
	}
	if err := m.Release(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	admit(t, m, b) // it was never a's
	disarm()
	grant(t, m, b, "w0")
	notReady(t, m, a)

	m.behind.pending.Wait()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	src := &effectless{}
	src.set("w0")
	m = settledManager(t, open(t, db.Path()), src)
	grant(t, m, b, "w0")
	notReady(t, m, a)
}
