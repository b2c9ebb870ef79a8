//go:build cgo

package worker

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"monopod.dev/monopod/internal/executor/journal"
	"monopod.dev/monopod/internal/executor/protocol"
)

func TestDecide(t *testing.T) {
	running := record{Stage: stageRunning, PID: 7}
	exited := record{Stage: stageExited, PID: 7, Exit: &protocol.Exit{}}
	for name, tc := range map[string]struct {
		r    record
		f    found
		want action
	}{
		"killed while it created":         {record{Stage: stageCreating}, found{sameBoot: true, held: true, alive: true}, actUndo},
		"killed while it deleted":         {record{Stage: stageDeleting, PID: 7, Exit: &protocol.Exit{}}, found{sameBoot: true, held: true}, actDelete},
		"runs":                            {running, found{sameBoot: true, held: true, alive: true}, actTakeOver},
		"created":                         {record{Stage: stageCreated, PID: 7}, found{sameBoot: true, held: true, alive: true}, actTakeOver},
		"ended meanwhile":                 {running, found{sameBoot: true, held: true, journalled: true}, actTakeOver},
		"ended before, not drained":       {exited, found{sameBoot: true, held: true, journalled: true}, actTakeOver},
		"ended before":                    {exited, found{sameBoot: true, journalled: true}, actKeep},
		"program cannot be executed":      {record{Stage: stageCreated, StartError: "x"}, found{sameBoot: true}, actKeep},
		"keeper died too, runs":           {running, found{sameBoot: true, alive: true}, actAdopt},
		"keeper died too, exit journal":   {running, found{sameBoot: true, journalled: true}, actConclude},
		"keeper died too, ended":          {running, found{sameBoot: true}, actLost},
		"machine restarted, same pid":     {running, found{sameBoot: false, alive: true}, actLost},
		"machine restarted, exited":       {exited, found{}, actKeep},
		"machine restarted while created": {record{Stage: stageCreating}, found{}, actUndo},
	} {
		if got := decide(tc.r, tc.f); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestVerdict(t *testing.T) {
	now := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	at := now.Add(-time.Hour)
	for name, tc := range map[string]struct {
		e              journal.Exit
		known, started bool
		head           string
		want           protocol.Exit
	}{
		"plain":                 {journal.Exit{Code: 7, At: at, Executed: true}, true, true, "out", protocol.Exit{Code: 7, At: at}},
		"program exits 255":     {journal.Exit{Code: 255, At: at, Executed: true}, true, true, "", protocol.Exit{Code: 255, At: at}},
		"cannot be executed":    {journal.Exit{Code: 255, At: at}, true, true, "exec x: bad\n", protocol.Exit{Code: 128, At: at, Reason: "StartError", Message: "exec x: bad"}},
		"killed before execve":  {journal.Exit{Code: 137, At: at}, true, true, "", protocol.Exit{Code: 137, At: at}},
		"killed before Start":   {journal.Exit{Code: 137, At: at}, true, false, "", protocol.Exit{Code: 137, At: at}},
		"nobody was there":      {journal.Exit{}, false, true, "", protocol.Exit{Code: 255, At: now, Reason: "Unknown"}},
		"init failed, no Start": {journal.Exit{Code: 255, At: at}, true, false, "", protocol.Exit{Code: 255, At: at}},
	} {
		got := verdict(tc.e, tc.known, tc.started, tc.head, now)
		if tc.want.Reason == protocol.ReasonUnknown {
			tc.want.Message = got.Message
		}
		if got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

func TestClamp(t *testing.T) {
	all := []string{"CAP_KILL", "CAP_SYS_RESOURCE", "CAP_FROM_THE_FUTURE"}
	low := -998
	p := func() *specs.Process {
		return &specs.Process{
			Capabilities: &specs.LinuxCapabilities{Bounding: all, Effective: all, Permitted: all},
			Rlimits:      []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 2000, Hard: 5000}, {Type: "RLIMIT_CORE", Soft: 1, Hard: 2}},
			OOMScoreAdj:  &low,
		}
	}
	free := hostLimits{caps: map[string]bool{"CAP_KILL": true, "CAP_SYS_RESOURCE": true}, anyRlimit: true}
	got := p()
	if changes := free.clamp(got); len(changes) != 0 || !reflect.DeepEqual(got, p()) {
		t.Errorf("a host that has everything: %v %+v", changes, got)
	}
	tight := hostLimits{caps: map[string]bool{"CAP_KILL": true, "CAP_SYS_RESOURCE": false},
		hard: map[string]uint64{"RLIMIT_NOFILE": 1000, "RLIMIT_CORE": 10}, oomScoreAdj: 3}
	got = p()
	var kinds []string
	for _, c := range tight.clamp(got) {
		kinds = append(kinds, c.kind)
	}
	if want := []string{"capability CAP_SYS_RESOURCE", "RLIMIT_NOFILE", "oom_score_adj"}; !slices.Equal(kinds, want) {
		t.Errorf("changes %q, want %q", kinds, want)
	}
	if c := got.Capabilities.Bounding; !slices.Equal(c, []string{"CAP_KILL", "CAP_FROM_THE_FUTURE"}) {
		t.Errorf("capabilities %q", c)
	}
	if l := got.Rlimits; l[0].Soft != 1000 || l[0].Hard != 1000 || l[1].Soft != 1 || l[1].Hard != 2 {
		t.Errorf("limits %+v", l)
	}
	if *got.OOMScoreAdj != 3 || low != -998 {
		t.Errorf("oom_score_adj %d; the caller's is %d", *got.OOMScoreAdj, low)
	}
}

func TestOOMKills(t *testing.T) {
	for in, want := range map[string]uint64{
		"low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 0\n": 2, // v2
		"oom_kill_disable 0\nunder_oom 0\noom_kill 5\n":               5, // v1
		"oom_kill_disable 0\n":                                        0,
		"":                                                            0,
	} {
		if got := oomKills([]byte(in)); got != want {
			t.Errorf("%q: %d, want %d", in, got, want)
		}
	}
}

func TestValidID(t *testing.T) {
	for id, want := range map[string]bool{"a": true, "A-b_c.d+e9": true, "": false, ".": false, "..": false, "-a": false,
		"a/b": false, "a b": false, "ä": false, strings.Repeat("x", 128): true, strings.Repeat("x", 129): false} {
		if validID(id) != want {
			t.Errorf("%q: %t, want %t", id, !want, want)
		}
	}
}

// What is stored comes back: each field of the records survives encoding.
func TestRecordsAreSerializable(t *testing.T) {
	for _, v := range []any{&record{}, &journal.Exit{}} {
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

// A slow subscriber gets the newest state of each container, and not all of them.
func TestHubCoalesces(t *testing.T) {
	h := newHub()
	gate, got := make(chan struct{}), make(chan string, 100)
	ctx := t.Context()
	go h.subscribe(ctx, func() []protocol.ContainerState { return []protocol.ContainerState{{ID: "a", Phase: protocol.Created}} },
		func(ev protocol.Event) error {
			switch {
			case ev.Synced:
				got <- "synced"
				<-gate
			case ev.Deleted != "":
				got <- "deleted " + ev.Deleted
			default:
				got <- ev.Container.ID + " " + string(ev.Container.Phase)
			}
			return nil
		})
	first := []string{<-got, <-got}
	for _, phase := range []protocol.Phase{protocol.Created, protocol.Running, protocol.Exited} {
		h.publish("a", protocol.Event{Container: &protocol.ContainerState{ID: "a", Phase: phase}})
		h.publish("b", protocol.Event{Container: &protocol.ContainerState{ID: "b", Phase: phase}})
	}
	h.publish("b", protocol.Event{Deleted: "b"})
	close(gate)
	all := append(first, <-got, <-got)
	if want := []string{"a Created", "synced", "a Exited", "deleted b"}; !slices.Equal(all, want) {
		t.Errorf("events %q, want %q", all, want)
	}
}
