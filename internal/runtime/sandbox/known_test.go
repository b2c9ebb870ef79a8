package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/ocispec"
	"monopod.dev/monopod/internal/runtime/index"
	"monopod.dev/monopod/internal/runtime/randomid"
	"monopod.dev/monopod/internal/runtime/records"
	"monopod.dev/monopod/internal/state"
)

func openRecords(t testing.TB, dir string) (m *Records, stop func()) {
	t.Helper()
	db, _, err := state.Open(state.Config{Path: filepath.Join(dir, "state.db")})
	if err != nil {
		t.Fatal(err)
	}
	m = OpenRecords(RecordsConfig{Folders: Folders{filepath.Join(dir, "run")}, DB: db, Log: slog.New(slog.DiscardHandler)})
	return m, func() { db.Close() }
}

// some makes a record of few different facts, so that many have the same.
func some(rng *rand.Rand, n int) Record {
	rec := Record{ID: ids.SandboxID(randomid.New()), CreatedAt: time.Unix(int64(rng.IntN(50)), 0), Cgroup: fmt.Sprint("cg", rng.IntN(3)), OwnCgroup: rng.IntN(2) == 0,
		SELinux: ocispec.SELinuxLabels{Level: fmt.Sprint("level", rng.IntN(3))},
		Stored: records.Proto[*cri.PodSandboxConfig]{Message: &cri.PodSandboxConfig{
			Metadata: &cri.PodSandboxMetadata{Name: fmt.Sprint("p", rng.IntN(3)), Namespace: "n", Uid: fmt.Sprint("u", rng.IntN(2)), Attempt: uint32(rng.IntN(2))},
			Labels:   map[string]string{"unique": fmt.Sprint(n), "app": fmt.Sprint("a", rng.IntN(3))}}}}
	if rng.IntN(8) == 0 {
		rec.Stored.Message.Labels = nil
	}
	return rec
}

// agree compares what is found by the indexes with what a look at all records finds.
func agree(t *testing.T, m *Records, want map[ids.SandboxID]Record, seen []Record) {
	t.Helper()
	filters := []*cri.PodSandboxFilter{nil, {}, {Id: "0"}, {Id: strings.Repeat("0", randomid.Length)}}
	for _, ready := range []cri.PodSandboxState{cri.PodSandboxState_SANDBOX_READY, cri.PodSandboxState_SANDBOX_NOTREADY} {
		filters = append(filters, &cri.PodSandboxFilter{State: &cri.PodSandboxStateValue{State: ready}})
	}
	for _, rec := range seen {
		labels := rec.Config().GetLabels()
		filters = append(filters, &cri.PodSandboxFilter{Id: string(rec.ID)}, &cri.PodSandboxFilter{Id: string(rec.ID[:2])}, &cri.PodSandboxFilter{LabelSelector: labels},
			&cri.PodSandboxFilter{Id: string(rec.ID), LabelSelector: map[string]string{"app": "a0"}}, &cri.PodSandboxFilter{LabelSelector: map[string]string{"app": labels["app"]}})

		md := rec.Config().GetMetadata()
		var same []ids.SandboxID
		shares, uids, level := false, map[string]bool{}, 0
		for id, other := range want {
			if other.visible() && Name(other.Config().GetMetadata()) == Name(md) {
				same = append(same, id)
			}
			shares = shares || id != rec.ID && other.OwnCgroup && other.Cgroup == rec.Cgroup
			if other.visible() && other.Cgroup == rec.Cgroup {
				uids[other.Config().GetMetadata().GetUid()] = true
			}
			if other.SELinux.Level == rec.SELinux.Level {
				level++
			}
		}
		if found, ok := m.known.named(md); ok != (len(same) > 0) || ok && !slices.Contains(same, found.ID) {
			t.Fatalf("by the name %s %v, %s is found, want one of %v", Name(md), ok, found.ID, same)
		}
		if got := m.shares(&rec); got != shares {
			t.Fatalf("sandbox %s shares %s: %v, want %v", rec.ID, rec.Cgroup, got, shares)
		}
		if got := m.Shared(rec.Cgroup); got != (len(uids) > 1) {
			t.Fatalf("%s is shared: %v, and the pods in it are %v", rec.Cgroup, got, uids)
		}
		if got := m.known.levels.Len(rec.SELinux.Level); got != level {
			t.Fatalf("%s is that of %d sandboxes, want %d", rec.SELinux.Level, got, level)
		}
	}
	for _, f := range filters {
		var all []ids.SandboxID
		for id, rec := range want {
			if rec.visible() && strings.HasPrefix(string(id), f.GetId()) && (f.GetState() == nil || f.GetState().GetState() == rec.State()) && index.Selects(f.GetLabelSelector(), rec.Config().GetLabels()) {
				all = append(all, id)
			}
		}
		slices.SortFunc(all, func(a, b ids.SandboxID) int {
			return cmp.Or(want[a].CreatedAt.Compare(want[b].CreatedAt), cmp.Compare(a, b))
		})
		var got []ids.SandboxID
		for _, rec := range m.Select(f) {
			if !reflect.DeepEqual(rec, want[rec.ID]) {
				t.Fatalf("sandbox %s is %v, want %v", rec.ID, rec, want[rec.ID])
			}
			got = append(got, rec.ID)
		}
		if !slices.Equal(got, all) {
			t.Fatalf("the filter %v lets through\n%v, want\n%v", f, got, all)
		}
	}
}

// TestIndexesAgree: after whatever changes, and after a restart, what the indexes find is what a look at all records finds; without
// records there is nothing in them.
func TestIndexesAgree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m, stop := openRecords(t, dir)
	defer func() { stop() }()
	rng := rand.New(rand.NewPCG(1, 2))
	want := map[ids.SandboxID]Record{}
	var seen []Record
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 120 {
		if len(seen) == 0 || rng.IntN(3) == 0 {
			rec := some(rng, i)
			seen = append(seen, rec)
			check(m.Add(rec))
			want[rec.ID] = rec
			continue
		}
		rec, ok := want[seen[rng.IntN(len(seen))].ID]
		switch at := time.Unix(int64(100+i), 0); {
		case !ok:
			continue
		case rng.IntN(4) == 0:
			check(errors.Join(os.RemoveAll(m.Dir(rec.ID)), m.Forget(rec.ID)))
			delete(want, rec.ID)
			continue
		case !rec.visible():
			rec.ReadyAt = at
		case rec.StoppedAt.IsZero():
			rec.StoppedAt = at
		case rng.IntN(2) == 0: // nothing changes these of a record that is there; the indexes need not rely on it
			rec.Cgroup, rec.SELinux.Level = "another", "another"
		default:
			rec.ReclaimedAt = at
		}
		_, err := m.Modify(rec.ID, func(r *Record) bool { *r = rec; return true })
		check(err)
		want[rec.ID] = rec
		if i%8 == 0 {
			agree(t, m, want, seen)
		}
	}
	agree(t, m, want, seen)

	stop()
	m, stop = openRecords(t, dir)
	for id := range want {
		got, ok := m.Lookup(id)
		if !ok {
			t.Fatalf("sandbox %s is lost", id)
		}
		want[id] = got
	}
	agree(t, m, want, seen)
	for id := range want {
		check(m.Forget(id))
		delete(want, id)
	}
	agree(t, m, want, seen)
	if !reflect.DeepEqual(m.known, known{byID: map[ids.SandboxID]*Record{}}) {
		t.Errorf("records of nothing hold %v", m.known)
	}
}

// BenchmarkSelect finds the sandbox of one pod among others, as agents and kubelets do at each look at a pod.
func BenchmarkSelect(b *testing.B) {
	for _, n := range []int{10, 1000} {
		m := Records{Store: &records.Store[ids.SandboxID, Record]{}}
		for i := range n {
			rec := some(rand.New(rand.NewPCG(uint64(i), 0)), i)
			rec.Stored.Message.Labels, rec.ReadyAt = map[string]string{"uid": fmt.Sprint(i), "app": "web"}, time.Unix(1, 0)
			m.known.Put(&rec)
		}
		f := &cri.PodSandboxFilter{LabelSelector: map[string]string{"uid": "7", "app": "web"}}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				if got := m.Select(f); len(got) != 1 {
					b.Fatalf("found %v", got)
				}
			}
		})
	}
}
