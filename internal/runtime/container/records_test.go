package container

import (
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/runtime/records"
	"monopod.dev/monopod/internal/state"
)

// listening is a Listener that takes down what it hears, and looks at the containers' ends meanwhile.
type listening struct {
	*testing.T
	recs *Records
	told []string
}

func (l *listening) ContainerCreated(r Record) { l.told = append(l.told, "created "+string(r.ID)) }
func (l *listening) ContainerStarted(r Record) { l.told = append(l.told, "started "+string(r.ID)) }
func (l *listening) ContainerRemoved(r Record) { l.told = append(l.told, "removed "+string(r.ID)) }
func (l *listening) ContainerStopped(r Record) {
	l.told = append(l.told, "stopped "+string(r.ID))
	if now, err := l.recs.Get(r.ID); err != nil || now.Exit == nil {
		l.Errorf("the end of %s is told before it can be seen: %v, %v", r.ID, now, err)
	}
	if over(l.recs.Ending(r.ID)) {
		l.Error("those who wait for the end know of it before the listener does")
	}
}

func over(e *Ending) bool {
	select {
	case <-e.Exited():
		return true
	default:
		return false
	}
}

// TestFactsComeInAnyOrder: what the executor tells is taken in once, whatever comes first, and told in the order of a container's life.
func TestFactsComeInAnyOrder(t *testing.T) {
	at := time.Unix(1, 0)
	running := protocol.ContainerState{ID: "c", Phase: protocol.Running, StartedAt: at}
	exited := protocol.ContainerState{ID: "c", Phase: protocol.Exited, StartedAt: at, Exit: &protocol.Exit{Code: 3, At: at}}
	failed := protocol.ContainerState{ID: "c", Phase: protocol.Exited, StartedAt: at, Exit: &protocol.Exit{Code: 128, At: at, Reason: protocol.ReasonStartError}}
	for name, c := range map[string]struct {
		states []protocol.ContainerState
		told   []string
		state  cri.ContainerState
	}{
		"one after the other":     {[]protocol.ContainerState{running, running, exited, exited}, []string{"created c", "started c", "stopped c"}, cri.ContainerState_CONTAINER_EXITED},
		"the end alone":           {[]protocol.ContainerState{exited, running}, []string{"created c", "started c", "stopped c"}, cri.ContainerState_CONTAINER_EXITED},
		"it could not be started": {[]protocol.ContainerState{failed, failed}, []string{"created c", "stopped c"}, cri.ContainerState_CONTAINER_EXITED},
		"nothing":                 {[]protocol.ContainerState{{ID: "c", Phase: protocol.Created}}, []string{"created c"}, cri.ContainerState_CONTAINER_CREATED},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			db, _, err := state.Open(state.Config{Path: filepath.Join(dir, "state.db")})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			l := &listening{T: t}
			l.recs = OpenRecords(RecordsConfig{DB: db, Folders: Folders{Bundles: filepath.Join(dir, "run")}, Listener: l, Log: slog.New(slog.DiscardHandler)})
			for _, id := range []ids.ContainerID{"c", "half-made"} {
				if err := l.recs.Add(Record{ID: id, SandboxID: "s", Stored: records.Proto[*cri.ContainerConfig]{Message: &cri.ContainerConfig{}}, ReservedAt: at}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := l.recs.Modify("c", func(r *Record) bool { r.CreatedAt = at; return true }); err != nil {
				t.Fatal(err)
			}
			end := l.recs.Ending("c")
			if !end.Ask() || end.Ask() {
				t.Error("not one is the first to ask")
			}
			if end.NotAsked(); !end.Ask() {
				t.Error("nobody asks again after one who could not")
			}
			for _, s := range append(c.states, protocol.ContainerState{ID: "none", Phase: protocol.Exited, Exit: &protocol.Exit{}}) {
				if err := l.recs.Observe(s); err != nil {
					t.Error(err)
				}
			}
			rec, err := l.recs.Get("c")
			ended := c.state == cri.ContainerState_CONTAINER_EXITED
			if err != nil || rec.State() != c.state || over(end) != ended || !l.recs.Any("s") || !l.recs.MayRun("s") {
				t.Errorf("%v, %v; its end is known: %v", rec, err, over(end))
			}
			for _, id := range []ids.ContainerID{"half-made", "c"} {
				if err := l.recs.Forget(id); err != nil {
					t.Error(err)
				}
				if got := l.recs.MayRun("s"); got != (id == "half-made" && !ended) {
					t.Errorf("without %s one may run: %v", id, got)
				}
			}
			if want := append(c.told, "removed c"); !slices.Equal(l.told, want) || l.recs.Ending("c") != nil || l.recs.Any("s") {
				t.Errorf("told %v, want %v", l.told, want)
			}
		})
	}
}
