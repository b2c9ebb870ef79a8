package hold

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/journal"
	"monopod.dev/monopod/internal/executor/protocol"
)

func fd(n int) *protocol.FD { f := protocol.FD(n); return &f }

// full has every field set.
func full() *Estate {
	return &Estate{
		Version: 1, Build: "v1.2.3", Listener: 4, Lock: fd(5), Worker: &Retired{PID: 77, Channel: 6}, Program: fd(7),
		Holdings: []Bequest{{
			Holding: Holding{Key: "container/a", PID: 100, StartTime: 4711, Names: []string{PIDFD, Stdout}}, FDs: []protocol.FD{8, 9},
			Exit: &journal.Exit{Version: 1, BootID: "b", PID: 100, StartTime: 4711, Code: 137, At: time.Unix(1, 5).UTC(), Executed: true},
		}},
	}
}

// TestEstateOfVersion1: what another build has written is read as it was meant. The file is never to be changed: a new field is a new version.
func TestEstateOfVersion1(t *testing.T) {
	golden, err := os.ReadFile(filepath.Join("testdata", "estate-1.json"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeEstate(golden)
	if err != nil || !reflect.DeepEqual(got, full()) {
		t.Errorf("read as %+v, %v", got, err)
	}
	if raw, err := full().Encode(1); err != nil || string(raw)+"\n" != string(golden) {
		t.Errorf("written as %s, %v", raw, err)
	}
	// A field that the golden file has not would not be in a heir's hands.
	for _, typ := range []reflect.Type{reflect.TypeFor[Estate](), reflect.TypeFor[Retired](), reflect.TypeFor[Bequest](), reflect.TypeFor[Holding](), reflect.TypeFor[journal.Exit]()} {
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if name == "" && !typ.Field(i).Anonymous || name != "" && !strings.Contains(string(golden), `"`+name+`":`) {
				t.Errorf("%s.%s is not in the estate of version 1", typ, typ.Field(i).Name)
			}
		}
	}
}

func TestEstateIsRefused(t *testing.T) {
	for raw, want := range map[string]string{
		`{"version":0,"listener":4,"holdings":[]}`:                                                                "version 0, this program reads versions 1 to 1",
		`{"version":2,"listener":4,"holdings":[]}`:                                                                "version 2, this program reads versions 1 to 1",
		`{"listener":4,"holdings":[]}`:                                                                            "version 0",
		`{"version":1,"listener":4,"holdings":[],"freezer":true}`:                                                 `unknown field "freezer"`,
		`{"version":1,"listener":4,"holdings":[{"key":"a","names":[],"fds":[],"colour":"red"}]}`:                  `unknown field "colour"`,
		`{"version":1,"listener":4,"holdings":[]}{}`:                                                              "after top-level value",
		`{"version":1,"listener":2,"holdings":[]}`:                                                                "descriptor 2",
		`{"version":1,"listener":4,"lock":4,"holdings":[]}`:                                                       "descriptor 4",
		`{"version":1,"listener":4,"holdings":[{"key":"a","names":["pidfd"],"fds":[]}]}`:                          "1 names for 0 descriptors",
		`{"version":1,"listener":4,"holdings":[{"key":"a","names":[],"fds":[]},{"key":"a","names":[],"fds":[]}]}`: `"a" is there twice`,
		`[]`: "estate",
		``:   "estate",
	} {
		if e, err := DecodeEstate([]byte(raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v, want an error with %q", raw, e, err, want)
		}
	}
	if _, err := full().Encode(2); err == nil || !strings.Contains(err.Error(), "v1.2.3") {
		t.Errorf("written as version 2: %v", err)
	}
}

func FuzzEstate(f *testing.F) {
	raw, _ := full().Encode(1)
	f.Add(raw)
	f.Add([]byte(`{"version":1,"listener":4,"holdings":[]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := DecodeEstate(raw)
		if err != nil {
			return
		}
		again, err := e.Encode(e.Version)
		if err != nil {
			t.Fatal(err)
		}
		if same, err := DecodeEstate(again); err != nil || len(same.Holdings) != len(e.Holdings) {
			t.Errorf("%s is written as %s: %v", raw, again, err)
		}
	})
}

func TestCommonVersion(t *testing.T) {
	for _, c := range []struct {
		a, b Range
		want int
		ok   bool
	}{
		{Range{1, 1}, Range{1, 1}, 1, true},
		{Range{1, 3}, Range{2, 5}, 3, true},
		{Range{2, 5}, Range{1, 3}, 3, true},
		{Range{1, 1}, Range{2, 3}, 1, false},
		{Range{4, 5}, Range{1, 3}, 3, false},
	} {
		if v, ok := c.a.Common(c.b); ok != c.ok || ok && v != c.want {
			t.Errorf("%v and %v: %d %v, want %d %v", c.a, c.b, v, ok, c.want, c.ok)
		}
	}
}

// TestBequeath: the descriptors survive an execve from Bequeath on, and no longer than until Inherit, or undo.
func TestBequeath(t *testing.T) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	e := &Estate{Build: "b", Listener: protocol.FD(pipe[0]), Holdings: []Bequest{{Holding: Holding{Key: "k", Names: []string{Stdout}}, FDs: []protocol.FD{protocol.FD(pipe[1])}}}}
	survive := func(want bool) {
		t.Helper()
		for _, fd := range pipe {
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || (flags&unix.FD_CLOEXEC == 0) != want {
				t.Errorf("descriptor %d: flags %d %v, want it to survive: %v", fd, flags, err, want)
			}
		}
	}
	_, undo, err := e.Bequeath(1)
	if err != nil {
		t.Fatal(err)
	}
	survive(true)
	undo()
	survive(false)
	mem, _, err := e.Bequeath(1)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Inherit(mem)
	if err != nil || !reflect.DeepEqual(got, e) {
		t.Errorf("%+v %v", got, err)
	}
	survive(false)
}
