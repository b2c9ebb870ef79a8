package proc

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseStat(t *testing.T) {
	const rest = " S 12 1 1 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 1 0 4242 1000 10"
	for in, comm := range map[string]string{"7 (cat)" + rest: "cat", "7 (a) b (c)" + rest: "a) b (c", "7 ()" + rest: "", "7 (x\n)" + rest: "x\n"} {
		s, err := parseStat([]byte(in))
		if err != nil || s.Comm != comm || s.State != 'S' || s.PPID != 12 || s.Flags != 4194560 || s.StartTime != 4242 {
			t.Errorf("%q: %+v %v", in, s, err)
		}
	}
	for _, bad := range []string{"", "7", "7 (x", ")(", "7 (x) S 1", "7 (x) S a 1 1 0 -1 1 1 0 0 0 1 2 0 0 20 0 1 0 4242 1"} {
		if s, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q: %+v, want an error", bad, s)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("7 (cat) S 12 1 1 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 1 0 4242 1000 10"))
	f.Add([]byte(")("))
	f.Fuzz(func(_ *testing.T, in []byte) { parseStat(in) })
}

// child starts a process that is waited for by this package only.
func child(t *testing.T, script string) int {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.StartProcess(sh, []string{"sh", "-c", script}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	pid := p.Pid
	p.Release()
	return pid
}

func TestPeekThenReap(t *testing.T) {
	for script, want := range map[string]int{"exit 7": 7, "kill -9 $$": 137, "kill -15 $$": 143} {
		pid := child(t, script)
		fd, err := OpenFD(pid)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := fd.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		for range 2 { // peeking takes nothing away
			if st, ok, err := fd.Peek(); !ok || err != nil || st != (Status{PID: pid, Code: want}) {
				t.Errorf("%s: %+v %t %v", script, st, ok, err)
			}
		}
		if st, ok, err := PeekAnyChild(); !ok || err != nil || st.PID != pid {
			t.Errorf("%s: any child: %+v %t %v", script, st, ok, err)
		}
		stat, err := ReadStat(pid)
		if err != nil || !stat.Dead() || !stat.Executed() || stat.PPID != os.Getpid() || Alive(pid, stat.StartTime) {
			t.Errorf("%s: zombie %+v %v", script, stat, err)
		}
		if err := fd.Reap(); err != nil {
			t.Error(err)
		}
		if _, _, err := fd.Peek(); !errors.Is(err, ErrNotChild) {
			t.Errorf("%s: peek after the reap: %v", script, err)
		}
		if _, err := ReadStat(pid); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: stat after the reap: %v", script, err)
		}
		if err := fd.Signal(unix.SIGKILL); err != nil { // no error, and nobody is hit
			t.Error(err)
		}
		if st, ok := fd.ExitInfo(); ok && st.Code != want { // kernel 6.15 and later
			t.Errorf("%s: the kernel remembers %+v", script, st)
		}
		fd.Close()
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	pid := child(t, "exec sleep 1000")
	fd, err := OpenFD(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := fd.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait: %v, want Canceled", err)
	}
	if _, ok, err := fd.Peek(); ok || err != nil || fd.Ended() {
		t.Errorf("a process that runs: ended %t, %v", ok, err)
	}
	if err := fd.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := fd.Wait(t.Context()); err != nil {
		t.Errorf("Wait again: %v", err)
	}
	if err := Reap(pid); err != nil {
		t.Error(err)
	}
}
