package devices

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"monopod.dev/monopod/internal/devices/answer"
	"monopod.dev/monopod/internal/devices/source"
	"monopod.dev/monopod/internal/devices/topology"
	"monopod.dev/monopod/internal/state"
)

// holding is a container of the runtime that was started with what the manager gave it.
func holding(t *testing.T, m *Manager, req PodRequest, container string) Holding {
	t.Helper()
	g, err := m.Grant(t.Context(), req.container(container))
	if err != nil {
		t.Fatal(err)
	}
	return Holding{PodUID: req.UID, PodNamespace: req.Namespace, PodName: req.Name, Container: container, Record: g.Record}
}

// A ledger that was lost is made again from what runs; until that is done nothing is granted.
func TestALostLedgerIsLearntFromWhatRuns(t *testing.T) {
	dir := t.TempDir()
	src := &benchSource{}
	src.set("w0", "w1", "w2")
	src.prepare = func(_ source.Container, _ string, names []string) (answer.Answer, error) {
		return answer.Answer{CDIDevices: []string{widget + "=" + names[0]}, Envs: map[string]string{"W": names[0]}}, nil
	}
	old := settledManager(t, open(t, filepath.Join(dir, "old.db")), src)
	grant(t, old, request("z", "c", 1), "w0")
	a := podOf("a", asks("c1", 1), asks("c2", 1))
	admit(t, old, a)
	holdings := []Holding{holding(t, old, a, "c1"), holding(t, old, a, "c2"), {PodUID: "plain", Container: "c"}}
	holdings = append(holdings, holding(t, old, request("z", "c", 1), "c")) // of a pod that is gone
	before := len(src.prepared)

	m := newManager(Config{DB: open(t, filepath.Join(dir, "new.db")), Log: quiet(), Boot: "one"}, new(topology.Aligner), src)
	notReady(t, m, request("b", "c", 1), "not known before the runtime has told what runs")
	ticked := watch(t, m)
	if err := m.Reconcile(t.Context(), map[string]bool{"a": true, "b": true, "plain": true}, holdings); err != nil || !ticked() {
		t.Fatal(err)
	}
	grant(t, m, request("b", "c", 1), "w0")
	notReady(t, m, request("d", "c", 1), "3 in use")
	if got := given(t, m, a, "c1") + given(t, m, a, "c2"); got != "w1w2" {
		t.Errorf("given %q", got)
	}
	if g, err := m.Grant(t.Context(), a.container("c2")); err != nil || g.Envs["W"] != "w2" || len(src.prepared) != before+1 {
		t.Errorf("%+v, %v after %q: the answer is to be the one that was given", g, err, src.prepared)
	}
	admit(t, m, a)
	if recs, bad := m.clerk.ledger.load(); len(recs) != 2 || len(bad) != 0 || recs["a"].Name != "p-a" {
		t.Errorf("on disk: %+v, %v", recs, bad)
	}
}

// A record that cannot be read is made again where its pod's containers tell; where they do not, nothing is granted while the pod lives.
func TestADamagedRecordIsLearntFromWhatRuns(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "agent.db"))
	src := &benchSource{}
	src.set("w0", "w1")
	m := settledManager(t, db, src)
	req := request("a", "c", 1)
	grant(t, m, req, "w0")
	tells := holding(t, m, req, "c")
	for name, tc := range map[string]struct {
		holdings []Holding
		want     string // of the next pod; empty: nothing
	}{
		"its container tells":           {[]Holding{tells}, "w1"},
		"it has no container":           {nil, "w0"},
		"its container tells nothing":   {[]Holding{{PodUID: "a", Container: "c"}}, ""},
		"its container tells nonsense":  {[]Holding{{PodUID: "a", Container: "c", Record: "{"}}, ""},
		"its container tells of schema": {[]Holding{{PodUID: "a", Container: "c", Record: `{"schema":9}`}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if err := state.NewTable[json.RawMessage](db, tableName).Put("a", json.RawMessage(`"damaged"`)); err != nil {
				t.Fatal(err)
			}
			m := newManager(Config{DB: db, Log: quiet(), Boot: "one"}, new(topology.Aligner), src)
			if err := m.Reconcile(t.Context(), map[string]bool{"a": true, "b": true}, tc.holdings); err != nil {
				t.Fatal(err)
			}
			if tc.want == "" {
				notReady(t, m, request("b", "c", 1), "not known for sure")
				if len(m.Problems()) != 1 {
					t.Errorf("problems: %v", m.Problems())
				}
			} else {
				grant(t, m, request("b", "c", 1), tc.want)
			}
			for _, uid := range []string{"a", "b"} {
				if err := m.Release(t.Context(), uid); err != nil {
					t.Fatal(err)
				}
			}
			grant(t, m, request("d", "c", 2), "w0", "w1")
			if err := m.Release(t.Context(), "d"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A pod that has given its devices back, since the caller listed the containers, does not get them again by what its containers said then.
func TestWhatWasReleasedBeforeIsNotLearnt(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "agent.db"))
	src := &benchSource{}
	src.set("w0")
	old := settledManager(t, db, src)
	a := request("a", "c", 1)
	grant(t, old, a, "w0")
	listed := []Holding{holding(t, old, a, "c")}

	m := newManager(Config{DB: db, Log: quiet(), Boot: "two"}, new(topology.Aligner), src)
	if err := m.Release(t.Context(), "a"); err != nil { // it has ended: the machine was rebooted, and it is not started again
		t.Fatal(err)
	}
	if err := m.Reconcile(t.Context(), map[string]bool{"a": true}, listed); err != nil {
		t.Fatal(err)
	}
	grant(t, m, request("b", "c", 1), "w0")
}
