package container

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/runtime/index"
	"monopod.dev/monopod/internal/runtime/randomid"
	"monopod.dev/monopod/internal/runtime/records"
)

// some makes a record of few different facts, so that many have the same.
func some(rng *rand.Rand, sandboxes []ids.SandboxID, n int) Record {
	rec := Record{ID: ids.ContainerID(randomid.New()), SandboxID: sandboxes[rng.IntN(len(sandboxes))], ReservedAt: time.Unix(int64(rng.IntN(50)), 0),
		Stored: records.Proto[*cri.ContainerConfig]{Message: &cri.ContainerConfig{
			Labels: map[string]string{"unique": fmt.Sprint(n), "app": fmt.Sprint("a", rng.IntN(3))}}}}
	if rng.IntN(8) == 0 {
		rec.Stored.Message.Labels = nil
	}
	return rec
}

// agree compares what is found by the indexes with what a look at all records finds.
func agree(t *testing.T, m *Records, want map[ids.ContainerID]Record, seen []Record) {
	t.Helper()
	find := func(what string, got []Record, wanted func(*Record) bool) {
		t.Helper()
		var all []ids.ContainerID
		for id, rec := range want {
			if wanted(&rec) {
				all = append(all, id)
			}
		}
		slices.SortFunc(all, func(a, b ids.ContainerID) int {
			return cmp.Or(want[a].ReservedAt.Compare(want[b].ReservedAt), cmp.Compare(a, b))
		})
		var ids []ids.ContainerID
		for _, rec := range got {
			if !reflect.DeepEqual(rec, want[rec.ID]) {
				t.Fatalf("container %s is %v, want %v", rec.ID, rec, want[rec.ID])
			}
			ids = append(ids, rec.ID)
		}
		if !slices.Equal(ids, all) {
			t.Fatalf("%s: found\n%v, want\n%v", what, ids, all)
		}
	}
	filters := []*cri.ContainerFilter{nil, {}, {Id: "0"}, {Id: strings.Repeat("0", randomid.Length)}, {PodSandboxId: strings.Repeat("0", randomid.Length)}}
	for _, state := range []cri.ContainerState{cri.ContainerState_CONTAINER_CREATED, cri.ContainerState_CONTAINER_RUNNING, cri.ContainerState_CONTAINER_EXITED} {
		filters = append(filters, &cri.ContainerFilter{State: &cri.ContainerStateValue{State: state}})
	}
	for _, rec := range seen {
		labels := rec.Config().GetLabels()
		filters = append(filters, &cri.ContainerFilter{Id: string(rec.ID)}, &cri.ContainerFilter{Id: string(rec.ID[:2])}, &cri.ContainerFilter{LabelSelector: labels},
			&cri.ContainerFilter{PodSandboxId: string(rec.SandboxID)}, &cri.ContainerFilter{PodSandboxId: string(rec.SandboxID[:2]), LabelSelector: map[string]string{"app": "a0"}},
			&cri.ContainerFilter{Id: string(rec.ID), PodSandboxId: string(seen[0].SandboxID)}, &cri.ContainerFilter{PodSandboxId: string(rec.SandboxID), LabelSelector: labels})
		inSandbox := func(r *Record) bool { return r.SandboxID == rec.SandboxID }
		find("all of the sandbox", m.AllInSandbox(rec.SandboxID), inSandbox)
		find("those of the sandbox", m.InSandbox(rec.SandboxID), func(r *Record) bool { return r.Visible() && inSandbox(r) })
		if got := m.MayRun(rec.SandboxID); got != slices.ContainsFunc(m.AllInSandbox(rec.SandboxID), func(r Record) bool { return r.Exit == nil }) {
			t.Fatalf("sandbox %s may run: %v", rec.SandboxID, got)
		}
	}
	for _, f := range filters {
		find(fmt.Sprint("the filter ", f), m.Select(f), func(r *Record) bool {
			return r.Visible() && strings.HasPrefix(string(r.ID), f.GetId()) && strings.HasPrefix(string(r.SandboxID), f.GetPodSandboxId()) &&
				(f.GetState() == nil || f.GetState().GetState() == r.State()) && index.Selects(f.GetLabelSelector(), r.Config().GetLabels())
		})
	}
	find("all", m.All(), func(*Record) bool { return true })
}

// TestEntriesAgree: after whatever changes, what the indexes find is what a look at all records finds; without records there is nothing
// in them.
func TestEntriesAgree(t *testing.T) {
	t.Parallel()
	m := Records{Store: &records.Store[ids.ContainerID, Record]{}}
	rng := rand.New(rand.NewPCG(1, 2))
	sandboxes := []ids.SandboxID{ids.SandboxID(randomid.New()), ids.SandboxID(randomid.New()), ids.SandboxID(randomid.New())}
	want := map[ids.ContainerID]Record{}
	var seen []Record
	for i := range 200 {
		if len(seen) == 0 || rng.IntN(3) == 0 {
			rec := some(rng, sandboxes, i)
			seen = append(seen, rec)
			m.known.Put(&rec)
			want[rec.ID] = rec
			continue
		}
		rec, ok := want[seen[rng.IntN(len(seen))].ID]
		switch at := time.Unix(int64(100+i), 0); {
		case !ok:
			m.known.Drop(seen[0].ID) // gone, or about to go
			delete(want, seen[0].ID)
			continue
		case rng.IntN(4) == 0:
			m.known.Drop(rec.ID)
			delete(want, rec.ID)
			continue
		case rec.CreatedAt.IsZero():
			rec.CreatedAt = at
		case rec.StartedAt.IsZero():
			rec.StartedAt = at
		case rec.Exit == nil:
			rec.Exit = &protocol.Exit{At: at}
		case rng.IntN(2) == 0: // nothing changes these of a record that is there; the indexes need not rely on it
			other := some(rng, sandboxes, i)
			rec.SandboxID, rec.Stored = other.SandboxID, other.Stored
		default:
			rec.Removing = true
		}
		m.known.Put(&rec)
		want[rec.ID] = rec
		if i%8 == 0 {
			agree(t, &m, want, seen)
		}
	}
	agree(t, &m, want, seen)
	for id := range want {
		m.known.Drop(id)
		delete(want, id)
	}
	agree(t, &m, want, seen)
	if !reflect.DeepEqual(m.known, known{byID: map[ids.ContainerID]*entry{}}) {
		t.Errorf("records of nothing hold %v", m.known)
	}
}

// BenchmarkInSandbox finds the containers of one sandbox among others, as each creation, start and event does.
func BenchmarkInSandbox(b *testing.B) {
	for _, n := range []int{10, 1000} {
		m := Records{Store: &records.Store[ids.ContainerID, Record]{}}
		for i := range n {
			rec := some(rand.New(rand.NewPCG(uint64(i), 0)), []ids.SandboxID{ids.SandboxID(fmt.Sprint("sandbox", i))}, i)
			rec.CreatedAt = time.Unix(1, 0)
			m.known.Put(&rec)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				if got := m.InSandbox("sandbox7"); len(got) != 1 {
					b.Fatalf("found %v", got)
				}
			}
		})
	}
}
