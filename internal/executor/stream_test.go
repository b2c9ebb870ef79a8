package executor_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/ids"
)

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// process is the specification of an exec's process.
func process(args ...string) *specs.Process {
	return &specs.Process{Args: args, Cwd: "/", Env: []string{"PATH=/bin"}}
}

func TestExec(t *testing.T) {
	n := newNode(t)
	n.start(n.bundle("a", nil, "sleep", "1000"))
	inR, inW := pipe(t)
	outR, outW := pipe(t)
	errR, errW := pipe(t)
	req := protocol.ExecRequest{ID: "a", ExecID: "x", Process: process("sh", "-c", "cat; echo err >&2; exit 9"), Stdin: true, Stdout: true, Stderr: true}
	done := make(chan error, 1)
	var resp protocol.ExecResponse
	go func() {
		var err error
		resp, err = n.c.Exec(n.ctx(), req, inR, outW, errW)
		inR.Close()
		outW.Close()
		errW.Close()
		done <- err
	}()
	io.WriteString(inW, "hello")
	inW.Close()
	out, _ := io.ReadAll(outR)
	errs, _ := io.ReadAll(errR)
	if err := <-done; err != nil || resp.Exit.Code != 9 || string(out) != "hello" || string(errs) != "err\n" {
		t.Errorf("exec: %v %+v %q %q", err, resp, out, errs)
	}
	_, err := n.c.Exec(n.ctx(), protocol.ExecRequest{ID: "a", ExecID: "x", Process: process("no-such-program")})
	if !errdefs.IsInvalidArgument(err) || err.Error() != `exec: "no-such-program": executable file not found in $PATH` {
		t.Errorf("exec of a missing program: %v", err)
	}
	if _, err := n.c.Exec(n.ctx(), protocol.ExecRequest{ID: "b", ExecID: "x", Process: process("true")}); !errdefs.IsNotFound(err) {
		t.Errorf("exec in no container: %v, want NotFound", err)
	}
	n.kill("a", unix.SIGKILL)
	n.exit("a")
	if _, err := n.c.Exec(n.ctx(), protocol.ExecRequest{ID: "a", ExecID: "x", Process: process("true")}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("exec in an exited container: %v, want FailedPrecondition", err)
	}
}

// startExec runs an exec that prints one line when it is up, and returns that line and how it ended.
func (n *node) startExec(ctx context.Context, id ids.ContainerID, execID ids.ExecID, args ...string) (line string, done chan error) {
	n.t.Helper()
	outR, outW := pipe(n.t)
	done = make(chan error, 1)
	go func() {
		_, err := n.c.Exec(ctx, protocol.ExecRequest{ID: id, ExecID: execID, Process: process(args...), Stdout: true}, outW)
		outW.Close()
		done <- err
	}()
	line, err := bufio.NewReader(outR).ReadString('\n')
	if err != nil {
		n.t.Fatal("exec prints nothing: ", err)
	}
	return strings.TrimSpace(line), done
}

// alive asks the container whether a process of its PID namespace is there.
func (n *node) alive(id ids.ContainerID, pid string) bool {
	resp, err := n.c.Exec(n.ctx(), protocol.ExecRequest{ID: id, ExecID: "probe", Process: process("kill", "-0", pid)})
	return err == nil && resp.Exit.Code == 0
}

func TestExecEndsWithItsCaller(t *testing.T) {
	n := newNode(t)
	n.start(n.bundle("a", nil, "sleep", "1000"))
	ctx, cancel := context.WithCancel(n.ctx())
	pid, done := n.startExec(ctx, "a", "x", "sh", "-c", "echo $$; exec sleep 1000")
	if !n.alive("a", pid) {
		t.Fatal("the exec does not run")
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled exec: %v", err)
	}
	eventually(t, "the exec is killed", func() bool { return !n.alive("a", pid) })

	// What its shell has started goes with it, a daemon does not.
	ctx, cancel = context.WithCancel(n.ctx())
	pids, done := n.startExec(ctx, "a", "z", "sh", "-c", "sleep 1001 & a=$!; setsid sleep 1002 & echo $$ $a $!; wait")
	p := strings.Fields(pids)
	is := func(script string) bool {
		resp, err := n.c.Exec(n.ctx(), protocol.ExecRequest{ID: "a", ExecID: "probe", Process: process("sh", "-c", script)})
		return err == nil && resp.Exit.Code == 0
	}
	eventually(t, "the daemon is one", func() bool { return is("[ $(cut -d' ' -f6 /proc/" + p[2] + "/stat) = " + p[2] + " ]") })
	cancel()
	<-done
	eventually(t, "the exec and its child are killed", func() bool {
		return !n.alive("a", p[0]) && !is("grep -q 'State:.[^Z]' /proc/"+p[1]+"/status") // the container's first process does not reap
	})
	if !n.alive("a", p[2]) {
		t.Error("the daemon is killed too")
	}

	// A hang-up reaches the whole session, and who ignores it goes on.
	pids, done = n.startExec(n.ctx(), "a", "h", "sh", "-c", "sleep 1003 & a=$!; (trap '' HUP; exec sleep 1004) & echo $$ $a $!; wait")
	p = strings.Fields(pids)
	eventually(t, "the other to be ready", func() bool { return is("grep -q 'SigIgn:.*[13579bdf]$' /proc/" + p[2] + "/status") })
	if err := n.c.Kill(n.ctx(), protocol.KillRequest{ID: "a", ExecID: "h", Signal: int(unix.SIGHUP), All: true}); err != nil {
		t.Error("hang-up: ", err)
	}
	<-done
	eventually(t, "the exec and its child have ended", func() bool {
		return !n.alive("a", p[0]) && !is("grep -q 'State:.[^Z]' /proc/"+p[1]+"/status")
	})
	if !n.alive("a", p[2]) {
		t.Error("what ignores the hang-up has ended")
	}

	pid, done = n.startExec(n.ctx(), "a", "y", "sh", "-c", "echo $$; exec sleep 1000")
	if err := n.c.Kill(n.ctx(), protocol.KillRequest{ID: "a", ExecID: "y", Signal: int(unix.SIGTERM)}); err != nil {
		t.Error("kill of the exec: ", err)
	}
	if err := <-done; err != nil {
		t.Errorf("killed exec: %v", err)
	}
	if n.alive("a", pid) {
		t.Error("the exec lives")
	}
}

// receivePTY takes a pty's master from the executor.
func receivePTY(t *testing.T, sock int) *os.File {
	t.Helper()
	buf, oob := make([]byte, 16), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := unix.Recvmsg(sock, buf, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil || n != 1 {
		t.Fatal("receive the terminal: ", n, err)
	}
	msgs, _ := unix.ParseSocketControlMessage(oob[:oobn])
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil {
		t.Fatal(err)
	}
	unix.SetNonblock(fds[0], true)
	f := os.NewFile(uintptr(fds[0]), "pty")
	t.Cleanup(func() { f.Close() })
	f.SetReadDeadline(time.Now().Add(patience))
	return f
}

func TestExecTerminal(t *testing.T) {
	n := newNode(t)
	n.start(n.bundle("a", nil, "sleep", "1000"))
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	theirs := os.NewFile(uintptr(fds[1]), "socket")
	p := process("sh", "-c", "stty size; read x; stty size; exit 6")
	p.Terminal, p.ConsoleSize = true, &specs.Box{Width: 80, Height: 25}
	done := make(chan error, 1)
	var resp protocol.ExecResponse
	go func() {
		var err error
		resp, err = n.c.Exec(n.ctx(), protocol.ExecRequest{ID: "a", ExecID: "x", Process: p}, theirs)
		theirs.Close()
		done <- err
	}()
	pty := receivePTY(t, fds[0])
	r := bufio.NewReader(pty)
	if line, err := r.ReadString('\n'); line != "25 80\r\n" {
		t.Errorf("size %q %v", line, err)
	}
	if err := n.c.Resize(n.ctx(), protocol.ResizeRequest{ID: "a", ExecID: "x", Width: 100, Height: 30}); err != nil {
		t.Error("resize: ", err)
	}
	io.WriteString(pty, "go\n")
	r.ReadString('\n') // the echo
	if line, err := r.ReadString('\n'); line != "30 100\r\n" {
		t.Errorf("new size %q %v", line, err)
	}
	if err := <-done; err != nil || resp.Exit.Code != 6 {
		t.Errorf("exec: %v %+v, want code 6", err, resp)
	}
}

func TestAttach(t *testing.T) {
	n := newNode(t)
	req := n.bundle("a", nil, "sh", "-c", "while read x; do echo got $x; echo err $x >&2; done; echo end")
	req.Stdin, req.StdinOnce = true, true
	n.start(req)
	inR, inW := pipe(t)
	outR, outW := pipe(t)
	errR, errW := pipe(t)
	done := make(chan error, 1)
	go func() {
		err := n.c.Attach(n.ctx(), protocol.AttachRequest{ID: "a", Stdin: true, Stdout: true, Stderr: true}, inR, outW, errW)
		done <- err
	}()
	out, errs := bufio.NewReader(outR), bufio.NewReader(errR)
	io.WriteString(inW, "1\n")
	if line, _ := out.ReadString('\n'); line != "got 1\n" {
		t.Errorf("stdout %q", line)
	}
	if line, _ := errs.ReadString('\n'); line != "err 1\n" {
		t.Errorf("stderr %q", line)
	}
	inW.Close()
	inR.Close()
	if line, _ := out.ReadString('\n'); line != "end\n" { // StdinOnce: the container saw the end of its stdin
		t.Errorf("stdout %q", line)
	}
	if err := <-done; err != nil {
		t.Error("attach: ", err)
	}
	if e := n.exit("a"); e.Code != 0 {
		t.Errorf("exit %+v", e)
	}
	if got := len(readLog(t, req.LogPath)); got != 3 {
		t.Errorf("%d lines in the log, want 3", got)
	}
}

// TestHold: what is read from the note on comes, also when the container has ended by then. The stdin of whoever is attached by a name comes later.
func TestHold(t *testing.T) {
	n := newNode(t)
	req := n.bundle("a", nil, "sh", "-c", "while read x; do echo got $x; done; echo end; echo err >&2")
	req.Stdin, req.StdinOnce = true, true
	n.start(req)
	outR, outW := pipe(t)
	errR, errW := pipe(t)
	leave, cancel := context.WithCancel(n.ctx())
	left, err := n.c.Hold(leave, protocol.AttachRequest{ID: "a", Name: "left", Stdout: true}, outW)
	if err != nil {
		t.Fatal(err)
	}
	wait, err := n.c.Hold(n.ctx(), protocol.AttachRequest{ID: "a", Name: "here", Stdout: true, Stderr: true}, outW, errW)
	if err != nil {
		t.Fatal(err)
	}
	cancel() // whoever has brought no stdin ends none when he goes
	if err := left(); err == nil {
		t.Error("an attachment that was given up ended well")
	}
	outW.Close()
	errW.Close()
	inR, inW := pipe(t)
	if err := n.c.Attach(n.ctx(), protocol.AttachRequest{ID: "a", To: "nobody", Stdin: true}, inR); !errdefs.IsNotFound(err) {
		t.Errorf("the stdin of nobody: %v", err)
	}
	if err := n.c.Attach(n.ctx(), protocol.AttachRequest{ID: "a", To: "here", Stdin: true, Stdout: true}, inR, inW); !errdefs.IsInvalidArgument(err) {
		t.Errorf("output to another attachment: %v", err)
	}
	fed := make(chan error, 1)
	go func() { fed <- n.c.Attach(n.ctx(), protocol.AttachRequest{ID: "a", To: "here", Stdin: true}, inR) }()
	io.WriteString(inW, "1\n")
	inW.Close()
	if e := n.exit("a"); e.Code != 0 {
		t.Errorf("exit %+v", e)
	}
	if err := errors.Join(<-fed, wait()); err != nil {
		t.Error(err)
	}
	out, _ := io.ReadAll(outR)
	errs, _ := io.ReadAll(errR)
	if string(out) != "got 1\nend\n" || string(errs) != "err\n" {
		t.Errorf("%q, %q", out, errs)
	}
	if _, err := n.c.Hold(n.ctx(), protocol.AttachRequest{ID: "a"}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("when all is read: %v", err)
	}
}

// A client that does not read is cut off; the log and another client get everything.
func TestSlowClient(t *testing.T) {
	n := newNode(t)
	req := n.bundle("a", nil, "sh", "-c", "read x; head -c 8000000 /dev/zero; echo; echo end")
	req.Stdin = true
	n.start(req)
	_, slow := pipe(t)
	slowDone := make(chan error, 1)
	go func() { slowDone <- n.c.Attach(n.ctx(), protocol.AttachRequest{ID: "a", Stdout: true}, slow) }()
	outR, outW := pipe(t)
	go func() {
		n.c.Attach(n.ctx(), protocol.AttachRequest{ID: "a", Stdout: true}, outW)
		outW.Close()
	}()
	probeAttached(t, n, req)
	go io.Copy(io.Discard, outR)
	n.send("a", "\n")
	if e := n.exit("a"); e.Code != 0 {
		t.Errorf("exit %+v", e)
	}
	if err := <-slowDone; err == nil {
		t.Error("the client that does not read was served to the end")
	}
	size := 0
	for _, l := range readLog(t, req.LogPath) {
		size += len(l.text)
	}
	if size != 8000003 {
		t.Errorf("%d bytes in the log, want 8000003", size)
	}
}

// probeAttached waits until two clients are attached: the executor then has their pipes.
func probeAttached(t *testing.T, n *node, req protocol.CreateRequest) {
	h := n.hello()
	eventually(t, "both clients are attached", func() bool {
		fds, err := os.ReadDir("/proc/" + itoa(h.WorkerPID) + "/fd")
		if err != nil {
			t.Fatal(err)
		}
		pipes := 0
		for _, fd := range fds {
			if l, _ := os.Readlink("/proc/" + itoa(h.WorkerPID) + "/fd/" + fd.Name()); strings.HasPrefix(l, "pipe:") {
				pipes++
			}
		}
		return pipes >= 3+2 // the container's own, and one of each client
	})
}
