package devices

import (
	"errors"
	"testing"

	"monopod.dev/monopod/internal/kit/failpoint"
)

func TestReconcileFreesWhatThePodsThatAreGoneHad(t *testing.T) {
	m, _ := newTestManager(t, "w0", "w1", "w2")
	for _, uid := range []string{"a", "b", "c"} {
		admit(t, m, request(uid, "c", 1))
	}
	if err := m.Reconcile(t.Context(), map[string]bool{"b": true, "a": false}, nil); err != nil {
		t.Fatal(err)
	}
	if g := m.Grants(); len(g) != 1 || g[0].PodUID != "b" || g[0].PodName != "p-b" {
		t.Errorf("left: %+v", g)
	}
	grant(t, m, request("d", "c", 2), "w0", "w2")
}

func TestReleaseThatFailsKeepsTheDevices(t *testing.T) {
	m, _ := newTestManager(t, "w0")
	grant(t, m, request("a", "c", 1), "w0")
	defer failpoint.Arm("devices/release/removed", func() error { return errors.New("disk gone") })()
	if err := m.Release(t.Context(), "a"); err == nil {
		t.Fatal("no error")
	}
	notReady(t, m, request("b", "c", 1))
}
