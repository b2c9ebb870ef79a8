package devices

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/state"
)

// goldenV1 is a record of version 1, as it must still be read when the code has moved on.
const goldenV1 = `{"namespace":"default","name":"hello","containers":{` +
	`"init":{"devices":{"example.com/widget":["w1"]},"init":true,"grantedAt":"2025-11-21T02:30:00.5Z"},` +
	`"main":{"devices":{"example.com/widget":["w1","w0"]},"grantedAt":"2025-11-21T02:30:01Z"}}}`

var goldenAt = time.Date(2025, 11, 21, 2, 30, 0, 500e6, time.UTC)

// What an earlier version has granted stays granted, and becomes a record of today's when its container is started again.
func TestRecordsOfVersion1(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "agent.db"))
	if err := state.NewTable[json.RawMessage](db, tableName).Put("a", json.RawMessage(goldenV1)); err != nil {
		t.Fatal(err)
	}
	src := &benchSource{}
	src.set("w0", "w1", "w2")
	src.nodes("w1", "/dev/w1")
	m := settledManager(t, db, src)
	req := podOf("a", ContainerRequest{Name: "init", Role: alloc.Init, Resources: map[string]int64{widget: 1}}, asks("main", 2))
	grant(t, m, request("b", "c", 1), "w2")
	admit(t, m, req)
	if got := given(t, m, req, "main"); got != "w1 w0" {
		t.Errorf("main has %q", got)
	}
	rec, err := m.clerk.ledger.table.Get("a")
	if g := rec.Containers["main"].Grants[widget]; err != nil || g.Answer == nil || !slices.Equal(g.Devices[0].Nodes, []string{"/dev/w1"}) || !rec.Containers["main"].GrantedAt.Equal(goldenAt.Add(500*time.Millisecond)) {
		t.Errorf("stored as %+v, %v", rec, err)
	}
}

func TestADamagedRecordStopsNewGrantsWhileItsPodLives(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.db")
	db := open(t, path)
	src := &benchSource{}
	src.set("w0", "w1")
	m := settledManager(t, db, src)
	grant(t, m, request("good", "c", 1), "w0")
	if err := state.NewTable[string](db, tableName).Put("bad", "not a record"); err != nil {
		t.Fatal(err)
	}

	m = settledManager(t, db, src)
	grant(t, m, request("good", "c", 1), "w0")
	notReady(t, m, request("new", "c", 1), "damaged ledger record", `"bad"`)
	if p := m.Problems(); len(p) != 1 || !strings.Contains(p[0].Message, `"bad"`) {
		t.Errorf("problems: %v", p)
	}
	if err := m.Reconcile(t.Context(), map[string]bool{"good": true, "bad": true, "new": true}, []Holding{{PodUID: "bad", Container: "c"}}); err != nil {
		t.Fatal(err)
	}
	notReady(t, m, request("new", "c", 1), `"bad"`)
	ticked := watch(t, m)
	if err := m.Release(t.Context(), "bad"); err != nil || !ticked() {
		t.Fatalf("release: %v", err)
	}
	grant(t, m, request("new", "c", 1), "w1")

	// A record of a pod that is long gone stops nobody for longer than the first Reconcile.
	if err := state.NewTable[string](db, tableName).Put("ghost", "not a record"); err != nil {
		t.Fatal(err)
	}
	src.set("w0", "w1", "w2")
	m = settledManager(t, db, src)
	notReady(t, m, request("newer", "c", 1), `"ghost"`)
	ticked = watch(t, m)
	if err := m.Reconcile(t.Context(), map[string]bool{"good": true, "new": true, "newer": true}, nil); err != nil || !ticked() {
		t.Fatalf("reconcile: %v", err)
	}
	grant(t, m, request("newer", "c", 1), "w2")
}
