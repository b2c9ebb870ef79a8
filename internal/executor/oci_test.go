package executor_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/test/harness"
)

// buildRunc builds runc when a test first needs it.
var buildRunc = sync.OnceValues(func() (string, error) { return harness.BuildRunc(filepath.Dir(binary)) })

// oci is a bundle whose container runc makes.
func (n *node) oci(id ids.ContainerID, change func(*specs.Spec), args ...string) protocol.CreateRequest {
	n.t.Helper()
	runc, err := buildRunc()
	if err != nil {
		n.t.Fatal(err)
	}
	req := n.bundle(id, change, args...)
	req.Runtime = &protocol.OCIRuntime{Path: runc, Root: filepath.Join(n.dir, "oci")}
	return req
}

// checkRuncForgot checks that the runtime has nothing left.
func (n *node) checkRuncForgot() {
	n.t.Helper()
	left, err := os.ReadDir(filepath.Join(n.dir, "oci"))
	if err != nil || len(left) > 0 {
		n.t.Errorf("the runtime's root has %v (%v), want nothing", left, err)
	}
	if consoles, _ := filepath.Glob(filepath.Join(n.cfg.Dir, "pty-*")); len(consoles) > 0 {
		n.t.Errorf("consoles are left: %q", consoles)
	}
}

func TestOCIRuntime(t *testing.T) {
	n := newNode(t)
	req := n.oci("a", limited, "sh", "-c", "echo out; echo err >&2; while read x; do echo got $x; done; exit 7")
	req.Stdin, req.StdinOnce = true, true
	pid := n.start(req)
	if again, err := n.c.Create(n.ctx(), req); err != nil || again.PID != pid {
		t.Errorf("create again: %+v %v", again, err)
	}
	native := req
	native.Runtime = nil
	if _, err := n.c.Create(n.ctx(), native); !errdefs.IsAlreadyExists(err) {
		t.Errorf("create again, natively: %v, want AlreadyExists", err)
	}
	if h := n.hello(); status(pid, "PPid") != itoa(h.KeeperPID) {
		t.Errorf("the container's parent is %s, want the keeper, %d", status(pid, "PPid"), h.KeeperPID)
	}
	resp, err := n.c.Exec(n.ctx(), protocol.ExecRequest{ID: "a", ExecID: "x", Process: process("sh", "-c", "exit 3")})
	if err != nil || resp.Exit.Code != 3 {
		t.Errorf("exec: %+v %v, want 3", resp, err)
	}
	if out, code := n.execOutput("a", "sh", "-c", "echo hello; kill -9 $$"); out != "hello\n" || code != 137 {
		t.Errorf("exec: %q %d", out, code)
	}
	for _, program := range []string{"/no/such", "no-such", "/etc", "/tmp/none"} {
		_, err := n.c.Exec(n.ctx(), protocol.ExecRequest{ID: "a", ExecID: "x", Process: process(program)})
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), program) {
			t.Errorf("exec of %s: %v, want InvalidArgument that names it", program, err)
		}
	}
	n.update("a", specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr(int64(128 * mib))}})
	n.checkLimits("a", map[string]string{"memory": fmt.Sprint(128 * mib), "pids": "50"})
	n.killWorker()
	n.send("a", "1\n") // and stdin ends with its client
	if e := n.exit("a"); e.Code != 7 || e.Reason != "" {
		t.Errorf("exit %+v, want 7", e)
	}
	got := texts(readLog(t, req.LogPath))
	slices.Sort(got)
	if !slices.Equal(got, []string{"err", "got 1", "out"}) {
		t.Errorf("log %q", got)
	}
	for range 2 {
		if err := n.c.Delete(n.ctx(), "a"); err != nil {
			t.Error("delete: ", err)
		}
	}
	n.checkRuncForgot()
}

func TestOCITerminal(t *testing.T) {
	n := newNode(t)
	req := n.oci("a", func(s *specs.Spec) { s.Process.Terminal = true }, "sh", "-c", "trap 'stty size; exit 4' TERM; tty; while read x; do stty size; done")
	req.Stdin = true
	n.start(req)
	if err := n.c.Resize(n.ctx(), protocol.ResizeRequest{ID: "a", Width: 51, Height: 21}); err != nil {
		t.Error("resize: ", err)
	}
	eventually(t, "the first line", func() bool { return len(readLog(t, req.LogPath)) == 1 })
	n.send("a", "x\n")
	want := []string{"/dev/pts/0\r", "x\r", "21 51\r"}
	eventually(t, "the terminal's size", func() bool { return slices.Equal(texts(readLog(t, req.LogPath)), want) })
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	defer ours.Close()
	defer theirs.Close()
	p := process("sh", "-c", "tty; exit 5")
	p.Terminal = true
	resp, err := n.c.Exec(n.ctx(), protocol.ExecRequest{ID: "a", ExecID: "x", Process: p}, theirs)
	if err != nil || resp.Exit.Code != 5 {
		t.Errorf("exec with a terminal: %+v %v, want 5", resp, err)
	}
	if oob := make([]byte, unix.CmsgSpace(4)); true {
		if _, oobn, _, _, err := unix.Recvmsg(pair[0], make([]byte, 1), oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC); err != nil || oobn == 0 {
			t.Errorf("the exec's terminal: %v", err)
		} else if msgs, _ := unix.ParseSocketControlMessage(oob[:oobn]); len(msgs) == 1 {
			fds, _ := unix.ParseUnixRights(&msgs[0])
			unix.Close(fds[0])
		}
	}
	n.kill("a", unix.SIGTERM)
	if e := n.exit("a"); e.Code != 4 {
		t.Errorf("exit %+v, want 4", e)
	}
	if err := n.c.Delete(n.ctx(), "a"); err != nil {
		t.Error("delete: ", err)
	}
	n.checkRuncForgot()
}

// With the worker killed at each of its steps, the caller's retry succeeds and nothing is left.
func TestOCIWorkerDiesAtEachStep(t *testing.T) {
	for _, point := range []string{"oci/created", "held", "starting", "oci/started", "deleting"} {
		t.Run(strings.ReplaceAll(point, "/", "-"), func(t *testing.T) {
			t.Setenv(failpoint.EnvVar, "executor/worker/"+point+"=kill") // armed in the first worker only
			n := newNode(t)
			before := n.hello()
			n.runInSteps(n.oci("a", nil, "sh", "-c", inSteps))
			if err := n.c.Delete(n.ctx(), "a"); err != nil {
				t.Error("delete: ", err)
			}
			if n.hello().WorkerPID == before.WorkerPID {
				t.Error("the worker was not killed")
			}
			n.checkRuncForgot()
		})
	}
}

// The execs of a dead worker are killed, and so is a command of the runtime that hangs; what fails leaves nothing.
func TestOCICommandsEndWithTheirWorker(t *testing.T) {
	n := newNode(t)
	n.start(n.oci("a", nil, "sleep", "1000"))
	pid, done := n.startExec(n.ctx(), "a", "x", "sh", "-c", "echo $$; exec sleep 1000")
	n.killWorker()
	if err := <-done; err == nil {
		t.Error("the exec's caller was told that all is well")
	}
	eventually(t, "the exec is killed", func() bool { return !n.alive("a", pid) })
	hanging := filepath.Join(n.dir, "hanging")
	if err := os.WriteFile(hanging, []byte("#!/bin/sh\ncase \"$*\" in *create*) echo $$ > "+hanging+".pid; sleep 1000;; *) exit 1;; esac\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	req := n.bundle("b", nil, "true")
	req.Runtime = &protocol.OCIRuntime{Path: hanging, Root: filepath.Join(n.dir, "oci2")}
	created := make(chan error, 1)
	go func() { created <- n.callOnce(protocol.MethodCreate, req) }()
	eventually(t, "the command hangs", func() bool { return readFile(hanging+".pid") != "" })
	n.killWorker()
	if err := <-created; err == nil {
		t.Error("create by a command that hangs succeeds")
	}
	if _, err := n.c.State(n.ctx(), "b"); !errdefs.IsNotFound(err) {
		t.Errorf("state: %v, want NotFound", err)
	}
	for name, tc := range map[string]struct {
		runtime protocol.OCIRuntime
		args    []string
		want    string
	}{
		"no runtime": {protocol.OCIRuntime{Path: "/no/runtime", Root: n.dir + "/oci"}, []string{"true"}, "/no/runtime"},
		"relative":   {protocol.OCIRuntime{Path: "runc", Root: n.dir + "/oci"}, []string{"true"}, "runtime.path"},
		"no program": {*n.oci("b", nil).Runtime, []string{"/tmp/program"}, "/tmp/program"},
	} {
		req := n.bundle("b", nil, tc.args...)
		req.Runtime = &tc.runtime
		if _, err := n.c.Create(n.ctx(), req); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, tc.want)
		}
		if _, err := n.c.State(n.ctx(), "b"); !errdefs.IsNotFound(err) {
			t.Errorf("%s: state %v, want NotFound", name, err)
		}
	}
	n.kill("a", unix.SIGKILL)
	if e := n.exit("a"); e.Code != 137 {
		t.Errorf("exit %+v, want 137", e)
	}
}

// An exec that is killed takes with it all that is in its session, also what forks on meanwhile, and also when it is the worker that
// dies. A daemon goes on, and so does what a command that ends by itself has left.
func TestOCIExecEndsWithItsSession(t *testing.T) {
	n := newNode(t)
	n.start(n.oci("a", func(s *specs.Spec) { s.Linux.Namespaces = s.Linux.Namespaces[1:] }, "sleep", "1000")) // with the host's PIDs
	running := func(lastArgument string) (pids []string) {
		all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, file := range all {
			if strings.HasSuffix(readFile(file), "\x00"+lastArgument+"\x00") { // a zombie's is empty
				pids = append(pids, file)
			}
		}
		return pids
	}
	// Not as fast as it can: where the machine has no room for another process the shell ends.
	forks := "setsid sleep 1002.5 & echo up; while :; do sleep 7.25 & sleep 0.002; done"
	ctx, cancel := context.WithCancel(n.ctx())
	_, done := n.startExec(ctx, "a", "x", "sh", "-c", forks)
	eventually(t, "it forks", func() bool { return len(running("7.25")) > 20 && len(running("1002.5")) == 1 })
	cancel()
	<-done
	eventually(t, "the command is gone", func() bool { return len(running(forks)) == 0 })
	eventually(t, "its session is gone", func() bool { return len(running("7.25")) == 0 })
	_, done = n.startExec(n.ctx(), "a", "y", "sh", "-c", forks)
	eventually(t, "it forks", func() bool { return len(running("7.25")) > 20 && len(running("1002.5")) == 2 })
	n.killWorker()
	<-done
	eventually(t, "the session of the second one is gone", func() bool { return len(running("7.25")) == 0 })
	if got := running("1002.5"); len(got) != 2 {
		t.Errorf("daemons %v, want two", got)
	}
	if out, code := n.execOutput("a", "sh", "-c", "sleep 1003.5 >/dev/null 2>&1 & echo ends"); out != "ends\n" || code != 0 {
		t.Errorf("exec: %q %d", out, code)
	}
	// The shell may have ended before its child has become another program.
	eventually(t, "what a command has left runs", func() bool { return len(running("1003.5")) == 1 })
	n.kill("a", unix.SIGKILL)
	n.exit("a")
	if err := n.c.Delete(n.ctx(), "a"); err != nil {
		t.Error("delete: ", err)
	}
	if got := append(running("1002.5"), running("1003.5")...); len(got) != 0 {
		t.Errorf("%v outlive the container", got)
	}
}

// Whatever makes a container, its first process and further ones run under the seccomp profile of its specification.
func TestSeccompWithEveryStarter(t *testing.T) {
	filtered := func(s *specs.Spec) {
		s.Linux.Seccomp = &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Syscalls: []specs.LinuxSyscall{{Names: []string{"mkdir", "mkdirat"}, Action: specs.ActErrno}}}
	}
	const try = "while read -r l; do case $l in Seccomp:*) echo $l;; esac; done </proc/self/status; mkdir /tmp/x || echo refused"
	for name, make := range map[string]func(*node) protocol.CreateRequest{
		"native": func(n *node) protocol.CreateRequest {
			return n.bundle("a", filtered, "sh", "-c", try+"; echo ready; exec sleep 1000")
		},
		"libcontainer": func(n *node) protocol.CreateRequest {
			return n.bundle("a", func(s *specs.Spec) { filtered(s); s.Hostname = "h" }, "sh", "-c", try+"; echo ready; exec sleep 1000")
		},
		"runc": func(n *node) protocol.CreateRequest {
			return n.oci("a", filtered, "sh", "-c", try+"; echo ready; exec sleep 1000")
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.start(make(n))
			n.ready("a")
			first := strings.Join(texts(readLog(t, filepath.Join(n.dir, "a", "log"))), "\n")
			further, _, err := n.output(n.ctx(), "a", "x", "sh", "-c", try)
			if err != nil {
				t.Fatal(err)
			}
			for what, got := range map[string]string{"the first process": first, "a further process": further} {
				if !strings.Contains(strings.ReplaceAll(got, "\t", " "), "Seccomp: 2") || !strings.Contains(got, "refused") {
					t.Errorf("%s has no filter: %q", what, got)
				}
			}
			n.kill("a", unix.SIGKILL)
			n.exit("a")
		})
	}
}
