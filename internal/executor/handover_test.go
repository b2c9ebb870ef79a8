package executor_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
)

// handOver makes the executor go on as another program, and returns when that serves.
func (n *node) handOver(program string, env ...string) error {
	n.t.Helper()
	f, err := os.Open(program)
	if err != nil {
		n.t.Fatal(err)
	}
	defer f.Close()
	return n.c.Handover(n.ctx(), protocol.HandoverRequest{Env: append([]string{"PATH=/bin"}, env...)}, f)
}

// runs reports whether both processes of the executor are of the program.
func (n *node) runs(program string) bool {
	n.t.Helper()
	want, err := os.Stat(program)
	if err != nil {
		n.t.Fatal(err)
	}
	h := n.hello()
	for _, pid := range []int{h.KeeperPID, h.WorkerPID} {
		st, err := os.Stat("/proc/" + itoa(pid) + "/exe")
		if err != nil || st.Size() != want.Size() { // or it has ended meanwhile
			return false
		}
	}
	return true
}

// TestHandover: the executor becomes another program and the former one again, while containers print without pause, wait for input, end, and are looked at.
func TestHandover(t *testing.T) {
	n := newNode(t)
	other := otherBuild(t)
	loud := n.bundle("loud", nil, "seq", "100000000")
	tty := n.bundle("tty", func(s *specs.Spec) { s.Process.Terminal = true }, "sh", "-c", "printf 'a part '; trap 'echo HUP' HUP; while read x; do echo got $x; done; exit 9")
	tty.Stdin = true
	stdin := n.bundle("stdin", nil, "sh", "-c", "printf 'begin '; while read x; do echo got $x; done; exit 7")
	stdin.Stdin, stdin.StdinOnce = true, true
	created := n.bundle("created", nil, "sh", "-c", "echo started; exit 5")
	pids := map[string]int{"loud": n.start(loud), "tty": n.start(tty), "stdin": n.start(stdin)}
	if _, err := n.c.Create(n.ctx(), created); err != nil {
		t.Fatal(err)
	}
	old := n.bundle("old", nil, "sleep", "1000")
	pids["old"] = n.start(old)
	gone := n.bundle("gone", nil, "sh", "-c", "exit 3")
	n.run(gone)
	if err := n.handOver(binary); err != nil { // what runs is the keeper's children from now on, and "young" the worker's
		t.Fatal(err)
	}
	young := n.bundle("young", nil, "sleep", "1000")
	pids["young"] = n.start(young)
	keeper := n.hello().KeeperPID
	before, err := n.c.List(n.ctx())
	if err != nil {
		t.Fatal(err)
	}
	for round, program := range []string{other, binary, other} {
		grown := fileSize(t, loud.LogPath) + 1<<20
		eventually(t, "the log grows", func() bool { return fileSize(t, loud.LogPath) > grown })
		if err := n.handOver(program); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if !n.runs(program) || n.hello().KeeperPID != keeper {
			t.Fatalf("round %d: %+v, want both processes of %s, and the keeper %d", round, n.hello(), program, keeper)
		}
		after, err := n.c.List(n.ctx())
		if got, want := told(t, after), told(t, before); err != nil || got != want {
			t.Errorf("round %d: %v\n%s, want\n%s", round, err, got, want)
		}
		n.send("tty", fmt.Sprintln(round))
		if resp, err := n.c.Exec(n.ctx(), protocol.ExecRequest{ID: "old", ExecID: "x", Process: process("sh", "-c", "exit 3")}); err != nil || resp.Exit.Code != 3 {
			t.Errorf("round %d: exec: %+v %v", round, resp, err)
		}
	}
	// Ends are told as they were: of the keeper's children, of those that were a former worker's, and of one that is started only now.
	n.kill("old", unix.SIGTERM)
	n.kill("young", unix.SIGTERM)
	if _, err := n.c.Start(n.ctx(), "created"); err != nil {
		t.Error(err)
	}
	n.send("stdin", "1\n")
	for id, want := range map[ids.ContainerID]int{"old": 143, "young": 143, "created": 5, "stdin": 7, "gone": 3} {
		if id == "old" || id == "young" { // sleep has no handler, and is pid 1: only SIGKILL ends it
			n.kill(id, unix.SIGKILL)
			want = 137
		}
		if e := n.exit(id); e.Code != want || e.Reason != "" {
			t.Errorf("%s: exit %+v, want %d", id, e, want)
		}
	}
	if got := joined(t, stdin.LogPath); got != "begin got 1\n" {
		t.Errorf("stdin: log %q", got)
	}
	eventually(t, "the terminal's log", func() bool {
		return joined(t, tty.LogPath) == "a part 0\r\ngot 0\r\n1\r\ngot 1\r\n2\r\ngot 2\r\n"
	})
	n.kill("loud", unix.SIGKILL)
	n.exit("loud")
	last := 0
	for i, line := range strings.SplitAfter(joined(t, loud.LogPath), "\n") {
		num, err := strconv.Atoi(strings.TrimSuffix(line, "\n"))
		if !strings.HasSuffix(line, "\n") {
			break // where the kill has cut it
		}
		if err != nil || num != i+1 {
			t.Fatalf("line %d of the loud log is %q", i+1, line)
		}
		last = num
	}
	t.Logf("%d numbers without a gap", last)
}

// told is what the executor tells of containers, to be compared.
func told(t *testing.T, all []protocol.ContainerState) string {
	t.Helper()
	slices.SortFunc(all, func(a, b protocol.ContainerState) int { return strings.Compare(string(a.ID), string(b.ID)) })
	raw, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// joined puts a log's lines together again.
func joined(t *testing.T, path string) string {
	t.Helper()
	var b strings.Builder
	for _, l := range readLog(t, path) {
		b.WriteString(l.text)
		if l.tag == "F" {
			b.WriteString("\n")
		}
	}
	return b.String()
}

// TestHandoverTellsClients: who has an exec, an attachment or a subscription is told that it is lost, with all output until then; the exec is ended.
func TestHandoverTellsClients(t *testing.T) {
	n := newNode(t)
	req := n.bundle("a", nil, "sh", "-c", "echo one; while read x; do echo got $x; done; exit 7")
	req.Stdin = true
	n.start(req)
	pid, exec := n.startExec(n.ctx(), "a", "x", "sh", "-c", "echo $$; exec sleep 1000")
	inR, inW := pipe(t)
	outR, outW := pipe(t)
	attached := make(chan error, 1)
	go func() {
		err := n.c.Attach(n.ctx(), protocol.AttachRequest{ID: "a", Stdin: true, Stdout: true}, inR, outW)
		outW.Close()
		attached <- err
	}()
	io.WriteString(inW, "1\n")
	eventually(t, "the answer is logged", func() bool { return strings.Contains(joined(t, req.LogPath), "got 1\n") })
	if err := n.handOver(otherBuild(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-exec; !protocol.IsLost(err) {
		t.Errorf("exec: %v, want it lost", err)
	}
	if err := <-attached; !protocol.IsLost(err) {
		t.Errorf("attach: %v, want it lost", err)
	}
	if got, err := io.ReadAll(outR); err != nil || !strings.HasSuffix(string(got), "got 1\n") {
		t.Errorf("the client has read %q, %v", got, err)
	}
	eventually(t, "the exec is killed", func() bool { return !n.alive("a", pid) })
	inW.Close()
}

// TestHandoverIsRefused: nothing has changed where the program is none, is another one, or cannot go on with what there is.
func TestHandoverIsRefused(t *testing.T) {
	n := newNode(t)
	pid := n.start(n.bundle("a", nil, "sleep", "1000"))
	before := n.hello()
	script := func(text string) string {
		path := filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for program, want := range map[string]string{
		script("exit 0"):                       "does not say which estates",
		"/dev/null":                            "0 bytes",
		filepath.Join(rootfs, "bin/badscript"): "cannot be executed",
	} {
		if err := n.handOver(program); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", readFile(program), err, want)
		}
	}
	record := filepath.Join(n.cfg.Dir, "containers", "future")
	if err := os.Mkdir(record, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(record, "record.json"), []byte(`{"version":99,"id":"future"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.handOver(otherBuild(t)); err == nil || !strings.Contains(err.Error(), "record of container future has version 99") {
		t.Errorf("a record that it cannot read: %v", err)
	}
	os.RemoveAll(record)
	if h := n.hello(); h != before {
		t.Errorf("%+v, want %+v", h, before)
	}
	if s, err := n.c.State(n.ctx(), "a"); err != nil || s.PID != pid || s.Phase != protocol.Running {
		t.Errorf("state %+v %v", s, err)
	}
}

// TestHandoverDies: with one of the processes killed at each step, the executor is the one or the other, and nobody notices.
func TestHandoverDies(t *testing.T) {
	for _, c := range []struct {
		point, action string
		heir          bool // it is armed in the new program
		becomes       bool // the other program
	}{
		{point: "worker/prepared", action: "kill"},
		{point: "worker/prepared", action: "error"},
		{point: "worker/frozen", action: "kill"},
		{point: "worker/frozen", action: "error"},
		{point: "keeper/prepared", action: "kill"},
		{point: "keeper/prepared", action: "error"},
		{point: "keeper/committed", action: "kill"},
		{point: "keeper/committed", action: "error"},
		{point: "keeper/inherited", action: "kill", heir: true},
		{point: "keeper/inherited", action: "error", heir: true},
		{point: "keeper/retiring", action: "kill", heir: true}, // both workers have all
		{point: "keeper/retiring", action: "error", heir: true},
		{point: "keeper/retired", action: "kill", heir: true, becomes: true}, // the new worker has all, and has not begun
		{point: "keeper/retired", action: "error", heir: true},
		{point: "worker/begun", action: "kill", heir: true, becomes: true}, // only the first one
		{point: "worker/begun", action: "error", heir: true, becomes: true},
		{point: "worker/alone", action: "kill", heir: true, becomes: true},
	} {
		t.Run(strings.ReplaceAll(c.point, "/", " ")+" "+c.action, func(t *testing.T) {
			armed := failpoint.EnvVar + "=executor/" + c.point + "=" + c.action
			if !c.heir {
				name, value, _ := strings.Cut(armed, "=")
				t.Setenv(name, value)
			}
			n := newNode(t)
			old := n.bundle("old", nil, "sh", "-c", "printf 'begin '; while read x; do echo got $x; done; exit 7")
			old.Stdin, old.StdinOnce = true, true
			pid := n.start(old)
			// Pipes are found again by who has them. A terminal is hung up when nobody holds it for a moment.
			tty := n.bundle("tty", func(s *specs.Spec) { s.Process.Terminal = true }, "sh", "-c", "trap 'echo HUP' HUP; while read x; do echo got $x; done; exit 9")
			tty.Stdin = true
			n.start(tty)
			before, other := n.hello(), otherBuild(t)
			env := []string{}
			if c.heir {
				env = append(env, armed)
			}
			err := n.handOver(other, env...)
			if c.action == "error" && !c.heir && err == nil {
				t.Error("it was not refused")
			}
			eventually(t, "one of the two is there, whole", func() bool {
				h := n.hello()
				dead := strings.HasPrefix(c.point, "keeper/") && c.action == "kill" // then the worker is the keeper
				return (h.KeeperPID != before.KeeperPID) == dead && n.runs(other) == c.becomes
			})
			if s, err := n.c.State(n.ctx(), "old"); err != nil || s.Phase != protocol.Running || s.PID != pid {
				t.Errorf("state %+v %v, want Running with pid %d", s, err, pid)
			}
			if e := n.run(n.bundle("new", nil, "sh", "-c", "exit 3")); e.Code != 3 {
				t.Errorf("a new container: exit %+v, want 3", e)
			}
			n.send("old", "1\n")
			n.send("tty", "1\n")
			eventually(t, "the terminal's log", func() bool { return joined(t, tty.LogPath) == "1\r\ngot 1\r\n" })
			orphan := c.point == "keeper/retired" && c.action == "kill" // a stranger's child, whose exit not every kernel tells
			if e := n.exit("old"); (e.Code != 7 || e.Reason != "") && (!orphan || e.Reason != protocol.ReasonUnknown) {
				t.Errorf("exit %+v, want 7", e)
			}
			// What is read of a line and not logged yet is lost with a worker that dies before it has stopped.
			if got := joined(t, old.LogPath); got != "begin got 1\n" && (got != "got 1\n" || c.point+" "+c.action != "worker/prepared kill") {
				t.Errorf("log %q", got)
			}
		})
	}
}
