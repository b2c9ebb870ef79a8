package executor_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
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

func itoa(n int) string { return strconv.Itoa(n) }

// The table of deaths: the worker is killed by kill -9. Whatever runs goes on as if nothing had happened.

func TestWorkerDies(t *testing.T) {
	n := newNode(t)
	tty := n.bundle("tty", func(s *specs.Spec) { s.Process.Terminal = true }, "sh", "-c", "trap 'echo HUP' HUP; while read x; do echo got $x; done")
	tty.Stdin = true
	stdin := n.bundle("stdin", nil, "sh", "-c", "while read x; do echo got $x; done; echo eof")
	stdin.Stdin, stdin.StdinOnce = true, false
	pids := map[ids.ContainerID]int{"tty": n.start(tty), "stdin": n.start(stdin)}
	n.send("tty", "1\n")
	n.send("stdin", "1\n")
	for range 3 {
		n.killWorker()
	}
	for id, pid := range pids {
		s, err := n.c.State(n.ctx(), id)
		if err != nil || s.Phase != protocol.Running || s.PID != pid {
			t.Errorf("%s: %+v %v, want Running with pid %d", id, s, err, pid)
		}
	}
	n.send("tty", "2\n")
	n.send("stdin", "2\n")
	if err := n.c.Resize(n.ctx(), protocol.ResizeRequest{ID: "tty", Width: 50, Height: 20}); err != nil {
		t.Error("resize: ", err)
	}
	want := []string{"got 1", "got 2"}
	eventually(t, "stdin is alive", func() bool { return slices.Equal(texts(readLog(t, stdin.LogPath)), want) })
	wantTTY := []string{"1\r", "got 1\r", "2\r", "got 2\r"} // with the terminal's echo
	eventually(t, "the tty is alive", func() bool { return slices.Equal(texts(readLog(t, tty.LogPath)), wantTTY) })
	resp, err := n.c.Exec(n.ctx(), protocol.ExecRequest{ID: "tty", ExecID: "x", Process: process("sh", "-c", "exit 3")})
	if err != nil || resp.Exit.Code != 3 {
		t.Errorf("exec: %+v %v", resp, err)
	}
	n.kill("tty", unix.SIGKILL)
	if e := n.exit("tty"); e.Code != 137 || e.Reason != "" {
		t.Errorf("tty: exit %+v, want 137", e)
	}
}

// A container that prints without pause loses at most one read buffer, or has it twice.
func TestWorkerDiesWhileContainerPrints(t *testing.T) {
	n := newNode(t)
	req := n.bundle("a", nil, "seq", "100000000")
	pid := n.start(req)
	last := 0
	for range 3 {
		grown := fileSize(t, req.LogPath) + 1<<20
		eventually(t, "the log grows", func() bool { return fileSize(t, req.LogPath) > grown })
		n.killWorker()
	}
	grown := fileSize(t, req.LogPath) + 1<<20
	eventually(t, "the log grows", func() bool { return fileSize(t, req.LogPath) > grown })
	if s, err := n.c.State(n.ctx(), "a"); err != nil || s.PID != pid {
		t.Errorf("state %+v %v, want pid %d", s, err, pid)
	}
	n.kill("a", unix.SIGKILL)
	n.exit("a")
	lines := readLog(t, req.LogPath)
	gaps := 0
	for i := 0; i < len(lines)-1; i++ { // the last line may be cut by the kill of the container
		num, err := strconv.Atoi(lines[i].text)
		if err == nil && num == last+1 {
			last = num
			continue
		}
		// The buffer that was lost began and ended somewhere in a line: this line is the rest of one, and the next is whole.
		gaps++
		if num, err = strconv.Atoi(lines[i+1].text); err != nil {
			t.Fatalf("line %d is %q", i+2, lines[i+1].text)
		}
		lost := 0
		for k := last + 1; k < num; k++ {
			lost += len(itoa(k) + "\n")
		}
		const buffer, torn = 16 << 10, 20
		if num <= last || lost > buffer+torn {
			t.Errorf("after %d comes %q, then %d: more than one buffer is lost, or something is repeated", last, lines[i].text, num)
		}
		last = num - 1
	}
	if gaps > 3 {
		t.Errorf("%d gaps after 3 deaths", gaps)
	}
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Size()
}

// What a container prints and how it exits while no worker is there is known exactly.
func TestContainerExitsWhileWorkerIsAway(t *testing.T) {
	for _, keeperAsleep := range []bool{true, false} {
		n := newNode(t)
		req := n.bundle("a", nil, "sh", "-c", "read x; for i in 1 2 3 4 5 6 7 8 9 10; do echo line $i; done; exit 7")
		req.Stdin = true
		pid := n.start(req)
		h := n.hello()
		halt(t, h.KeeperPID) // so that it starts no worker for now
		// Our own way to the container's stdin, since there will be no worker.
		stdin, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/0", pid), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer stdin.Close()
		if err := unix.Kill(h.WorkerPID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		awaitEnd(t, h.WorkerPID)
		if !keeperAsleep {
			unix.Kill(h.KeeperPID, unix.SIGCONT)
		}
		io.WriteString(stdin, "\n")
		awaitEnd(t, pid)
		unix.Kill(h.KeeperPID, unix.SIGCONT)
		if e := n.exit("a"); e.Code != 7 || e.Reason != "" {
			t.Errorf("exit %+v, want 7", e)
		}
		var want []string
		for i := range 10 {
			want = append(want, fmt.Sprint("line ", i+1))
		}
		if got := texts(readLog(t, req.LogPath)); !slices.Equal(got, want) {
			t.Errorf("log %q, want %q", got, want)
		}
	}
}

// inSteps prints a line and ends with the code 7, each when it is asked to.
const inSteps = "read x; echo hello; read x; exit 7"

// runInSteps runs a container with that script, and looks at its output and its exit. The worker may be killed at any step: nothing is
// printed while it is, for a worker that is killed between its read and its write takes what it has read along.
func (n *node) runInSteps(req protocol.CreateRequest) {
	n.t.Helper()
	req.Stdin = true
	n.start(req)
	n.send(req.ID, "\n")
	want := func() bool { return slices.Equal(texts(readLog(n.t, req.LogPath)), []string{"hello"}) }
	eventually(n.t, "the line is in the log", want)
	n.send(req.ID, "\n")
	if e := n.exit(req.ID); e.Code != 7 || e.Reason != "" {
		n.t.Errorf("exit %+v, want 7", e)
	}
	if !want() {
		n.t.Errorf("log %q", texts(readLog(n.t, req.LogPath)))
	}
}

// With the worker killed at each of its steps, the caller's retry succeeds and nothing is left.
func TestWorkerDiesAtEachStep(t *testing.T) {
	for _, point := range []string{"held", "starting", "journalled", "reaped", "deleting"} {
		t.Run(point, func(t *testing.T) {
			t.Setenv(failpoint.EnvVar, "executor/worker/"+point+"=kill") // armed in the first worker only
			n := newNode(t)
			before := n.hello()
			n.runInSteps(n.bundle("a", nil, "sh", "-c", inSteps))
			if err := n.c.Delete(n.ctx(), "a"); err != nil {
				t.Error("delete: ", err)
			}
			if n.hello().WorkerPID == before.WorkerPID {
				t.Error("the worker was not killed")
			}
		})
	}
}

// The execs of a dead worker are killed: their callers have been told that they are lost.
func TestExecEndsWithItsWorker(t *testing.T) {
	n := newNode(t)
	n.start(n.bundle("a", nil, "sleep", "1000"))
	pid, done := n.startExec(n.ctx(), "a", "x", "sh", "-c", "echo $$; exec sleep 1000")
	n.killWorker()
	if err := <-done; err == nil {
		t.Error("the exec's caller was told that all is well")
	}
	eventually(t, "the exec is killed", func() bool { return !n.alive("a", pid) })
}

// Keeper and worker are killed at once.
func TestKeeperAndWorkerDie(t *testing.T) {
	n := newNode(t)
	quiet := n.bundle("quiet", nil, "sh", "-c", "while read x; do echo got $x; done; sleep 1000")
	quiet.Stdin = true
	pid := n.start(quiet)
	n.send("quiet", "1\n")
	eventually(t, "the answer is logged", func() bool { return slices.Equal(texts(readLog(t, quiet.LogPath)), []string{"got 1"}) })
	doomed := n.bundle("doomed", nil, "sleep", "1000")
	doomedPID := n.start(doomed)
	h := n.hello()
	halt(t, h.KeeperPID)
	unix.Kill(h.WorkerPID, unix.SIGKILL)
	unix.Kill(h.KeeperPID, unix.SIGKILL)
	awaitEnd(t, h.WorkerPID)
	awaitEnd(t, h.KeeperPID)
	unix.Kill(doomedPID, unix.SIGKILL)
	eventually(t, "the container is reaped by whoever got it", func() bool { return gone(doomedPID) })
	n.launch()
	if e := n.exit("doomed"); e.Code != 255 || e.Reason != protocol.ReasonUnknown {
		t.Errorf("exit %+v, want 255 Unknown", e)
	}
	s, err := n.c.State(n.ctx(), "quiet")
	if err != nil || s.Phase != protocol.Running || s.PID != pid {
		t.Fatalf("state %+v %v, want Running with pid %d", s, err, pid)
	}
	resp, err := n.c.Exec(n.ctx(), protocol.ExecRequest{ID: "quiet", ExecID: "x", Process: process("sh", "-c", "echo again > /proc/1/fd/1; exit 2")})
	if err != nil || resp.Exit.Code != 2 {
		t.Errorf("exec: %+v %v", resp, err)
	}
	eventually(t, "output is logged again", func() bool { return slices.Equal(texts(readLog(t, quiet.LogPath)), []string{"got 1", "again"}) })
	n.kill("quiet", unix.SIGKILL)
	if e := n.exit("quiet"); e.Code != 137 && e.Reason != protocol.ReasonUnknown {
		t.Errorf("exit %+v, want 137 (where the kernel tells) or 255 Unknown", e)
	}
}

func gone(pid int) bool {
	_, err := os.Stat("/proc/" + itoa(pid))
	return err != nil
}

// Attached clients are told that their worker is gone; they attach again, and the container noticed nothing.
func TestAttachAgain(t *testing.T) {
	n := newNode(t)
	req := n.bundle("a", nil, "sh", "-c", "while read x; do echo got $x; done; echo eof")
	req.Stdin, req.StdinOnce = true, true
	n.start(req)
	inR, inW := pipe(t)
	done := make(chan error, 1)
	go func() { done <- n.c.Attach(n.ctx(), protocol.AttachRequest{ID: "a", Stdin: true}, inR) }()
	io.WriteString(inW, "1\n")
	eventually(t, "the first line", func() bool { return len(readLog(t, req.LogPath)) == 1 })
	n.killWorker()
	if err := <-done; err == nil {
		t.Error("the attachment ended without an error")
	}
	outR, outW := pipe(t)
	go func() {
		n.c.Attach(n.ctx(), protocol.AttachRequest{ID: "a", Stdin: true, Stdout: true}, inR, outW)
		outW.Close()
	}()
	out := bufio.NewReader(outR)
	io.WriteString(inW, "2\n")
	if line, _ := out.ReadString('\n'); strings.TrimSpace(line) != "got 2" {
		t.Errorf("stdout %q", line)
	}
	inW.Close()
	if line, _ := out.ReadString('\n'); strings.TrimSpace(line) != "eof" {
		t.Errorf("stdout %q", line)
	}
}

// The keeper alone is killed: the worker becomes the keeper, and nothing is lost.
func TestKeeperDies(t *testing.T) {
	n := newNode(t)
	old := n.bundle("old", nil, "sh", "-c", "while read x; do echo got $x; done")
	old.Stdin = true
	n.start(old)
	n.killWorker() // "old" is the keeper's child now
	tty := n.bundle("tty", func(s *specs.Spec) { s.Process.Terminal = true }, "sh", "-c", "trap 'echo HUP' HUP; read x; echo got $x; exit 7")
	tty.Stdin = true
	n.start(tty)
	for round := range 2 {
		h := n.hello()
		if err := unix.Kill(h.KeeperPID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		awaitEnd(t, h.KeeperPID)
		eventually(t, "the worker has become the keeper", func() bool { return n.hello().KeeperPID == h.WorkerPID })
		if again := n.hello(); again.WorkerPID == h.WorkerPID || again.WorkerPID == h.KeeperPID {
			t.Errorf("round %d: %+v, before: %+v", round, again, h)
		}
	}
	n.killWorker()
	n.send("old", "1\n")
	n.send("tty", "2\n")
	if e := n.exit("tty"); e.Code != 7 && e.Reason != protocol.ReasonUnknown { // after two keepers it is a stranger's child
		t.Errorf("tty: exit %+v, want 7 (where the kernel tells) or 255 Unknown", e)
	}
	if got := texts(readLog(t, tty.LogPath)); !slices.Equal(got, []string{"2\r", "got 2\r"}) {
		t.Errorf("tty: log %q", got)
	}
	eventually(t, "stdin is alive", func() bool { return slices.Equal(texts(readLog(t, old.LogPath)), []string{"got 1"}) })
	if e := n.run(n.bundle("new", nil, "sh", "-c", "exit 3")); e.Code != 3 {
		t.Errorf("a new container: exit %+v, want 3", e)
	}
}

// A worker that hangs is replaced, by which containers lose no more than by its death.
func TestWorkerHangs(t *testing.T) {
	t.Setenv("MONOPOD_EXECUTOR_WATCH", "100ms")
	t.Run("stopped", func(t *testing.T) {
		n := newNode(t)
		req := n.bundle("a", nil, "sh", "-c", "while read x; do echo got $x; done; exit 7")
		req.Stdin, req.StdinOnce = true, true
		pid := n.start(req)
		stdin, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/0", pid), os.O_WRONLY, 0) // there is nobody to ask
		if err != nil {
			t.Fatal(err)
		}
		defer stdin.Close()
		before := n.hello()
		halt(t, before.WorkerPID)
		io.WriteString(stdin, "1\n")
		awaitEnd(t, before.WorkerPID)
		io.WriteString(stdin, "2\n")
		eventually(t, "both lines are logged", func() bool { return slices.Equal(texts(readLog(t, req.LogPath)), []string{"got 1", "got 2"}) })
		after := n.hello()
		if s, err := n.c.State(n.ctx(), "a"); err != nil || s.Phase != protocol.Running || s.PID != pid || after.KeeperPID != before.KeeperPID {
			t.Errorf("state %+v %v, want Running with pid %d; before %+v, after %+v", s, err, pid, before, after)
		}
		stdin.Close()
		n.send("a", "3\n") // and its end
		if e := n.exit("a"); e.Code != 7 {
			t.Errorf("exit %+v, want 7", e)
		}
		if again := n.hello(); again != after {
			t.Errorf("%+v was replaced by %+v without need", after, again)
		}
	})
	t.Run("it says where", func(t *testing.T) {
		t.Setenv(failpoint.EnvVar, "executor/worker/ping=hang") // in the first worker only
		n := newNode(t)
		// How far anybody comes with the worker that hangs is a matter of how slow the machine is.
		eventually(t, "the log tells where it hangs", func() bool {
			log := readFile(n.cfg.Dir + "/log")
			return strings.Contains(log, "does not answer") && strings.Contains(log, "serveKeeper")
		})
		pid := n.start(n.bundle("a", nil, "sleep", "1000"))
		if s, err := n.c.State(n.ctx(), "a"); err != nil || s.Phase != protocol.Running || s.PID != pid {
			t.Errorf("state %+v %v, want Running with pid %d", s, err, pid)
		}
	})
}
