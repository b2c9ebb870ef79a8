package executor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/client"
	"monopod.dev/monopod/internal/executor/launch"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
)

func TestEnsureStartsOne(t *testing.T) {
	n := newNode(t)
	if err := n.c.Shutdown(n.ctx(), protocol.ShutdownRequest{}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if _, err := launch.Ensure(n.ctx(), n.cfg); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	h := n.hello()
	n.launch()
	if again := n.hello(); again != h {
		t.Errorf("Ensure with an executor there: %+v, want %+v", again, h)
	}
	st, err := os.Stat(n.cfg.Socket)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("socket's mode: %v %v, want 0600", st.Mode(), err)
	}
	sid, err := unix.Getsid(h.KeeperPID)
	if err != nil || sid != h.KeeperPID {
		t.Errorf("the keeper (pid %d) is in session %d (%v), want one of its own", h.KeeperPID, sid, err)
	}
	for _, pid := range []int{h.KeeperPID, h.WorkerPID} {
		if cg := readFile(fmt.Sprintf("/proc/%d/cgroup", pid)); !strings.Contains(cg, n.cgroup+"/executor") {
			t.Errorf("process %d is in the cgroups %s", pid, cg)
		}
	}
}

// otherBuild returns a program that does what the executor does, and is another file: what is behind an ELF file's end nobody reads.
func otherBuild(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "monopod-executor")
	if err := os.WriteFile(path, append(raw, "another build"...), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// An executor of another build is made to go on as the installed one, and back again; its containers notice nothing.
func TestEnsureWithAnotherBuild(t *testing.T) {
	n := newNode(t)
	n.cfg.Build = "v9"
	before := n.hello()
	out, err := launch.Ensure(n.ctx(), n.cfg)
	if err != nil || out != (launch.Outcome{Build: before.Build}) || n.hello() != before {
		t.Errorf("the same program: %+v %v, want it kept", out, err)
	}
	pid := n.start(n.bundle("a", nil, "sleep", "1000"))
	for _, program := range []string{otherBuild(t), binary} {
		n.cfg.Binary = program
		var wg sync.WaitGroup
		var handed atomic.Int32
		for range 3 { // at a time
			wg.Go(func() {
				out, err := launch.Ensure(n.ctx(), n.cfg)
				if err != nil || out.Behind != "" || out.Build != before.Build {
					t.Errorf("%+v %v, want it handed over", out, err)
				}
				if out.Former == before.Build {
					handed.Add(1)
				}
			})
		}
		wg.Wait()
		if h := n.hello(); handed.Load() == 0 || h.KeeperPID != before.KeeperPID || !n.runs(program) {
			t.Errorf("%d callers have handed over, and %+v serves, want it to be of %s", handed.Load(), h, program)
		}
		if s, err := n.c.State(n.ctx(), "a"); err != nil || s.Phase != protocol.Running || s.PID != pid {
			t.Errorf("state %+v %v, want Running with pid %d", s, err, pid)
		}
	}
}

// One that cannot be handed over is replaced where no container runs, and said to be behind, with the reason, where one does.
func TestEnsureWithoutHandover(t *testing.T) {
	n := newNode(t)
	n.cfg.Build = "v9"
	before := n.hello()
	n.cfg.Binary = filepath.Join(t.TempDir(), "monopod-executor")
	if err := os.WriteFile(n.cfg.Binary, []byte("#!/bin/sh\n[ $1 = heir ] && exit 1\nexec "+binary+" \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	n.start(n.bundle("a", nil, "sleep", "1000"))
	out, err := launch.Ensure(n.ctx(), n.cfg)
	if err != nil || n.hello() != before {
		t.Errorf("with a container: %+v %v, want it kept", out, err)
	}
	for _, want := range []string{"build " + before.Build, n.cfg.Binary + " is build v9", "could not be handed over", "does not say which estates"} {
		if !strings.Contains(out.Behind, want) {
			t.Errorf("with a container: %q, want %q", out.Behind, want)
		}
	}
	n.kill("a", unix.SIGKILL)
	n.exit("a")
	out, err = launch.Ensure(n.ctx(), n.cfg)
	if err != nil || out.Behind != "" || n.hello().KeeperPID == before.KeeperPID {
		t.Errorf("without a running container: %+v %v, want another executor than %+v", out, err, before)
	}
	if e := n.exit("a"); e.Code != 137 {
		t.Errorf("exit %+v, want 137: the new one knows what has ended", e)
	}
}

// foreign is an executor of another time, as far as launch speaks with one.
type foreign struct {
	hello    func() (protocol.HelloResponse, error)
	mu       sync.Mutex
	handover func(program []byte) error // nil: the connection is lost, as with one that goes on as another program
}

func (f *foreign) serve(_ context.Context, call *protocol.Call) (any, error) {
	switch call.Method {
	case protocol.MethodHello:
		return f.hello()
	case protocol.MethodShutdown:
		return nil, fmt.Errorf("%w: 1 container runs", errdefs.ErrFailedPrecondition)
	case protocol.MethodHandover:
		file := call.FDs[0].File("program")
		call.FDs = nil
		defer file.Close()
		raw, err := io.ReadAll(io.NewSectionReader(file, 0, 1<<30))
		if err == nil {
			f.mu.Lock()
			handover := f.handover
			f.mu.Unlock()
			err = handover(raw)
		}
		return nil, err
	}
	return nil, fmt.Errorf("%w: executor method %q", errdefs.ErrNotImplemented, call.Method)
}

// answer sets the answer to handovers.
func (f *foreign) answer(handover func(program []byte) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handover = handover
}

// listen serves in the place of an executor.
func (f *foreign) listen(t *testing.T) (launch.Config, func() *protocol.Conn) {
	t.Helper()
	dir := t.TempDir()
	cfg := launch.Config{Binary: binary, Build: "v9", Socket: filepath.Join(dir, "x.sock"), Dir: filepath.Join(dir, "x")}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: cfg.Socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	var mu sync.Mutex
	var last *protocol.Conn
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			mu.Lock()
			last = protocol.NewConn(context.WithoutCancel(t.Context()), c, protocol.ConnConfig{Serve: f.serve})
			mu.Unlock()
		}
	}()
	return cfg, func() *protocol.Conn {
		mu.Lock()
		defer mu.Unlock()
		return last
	}
}

// One of before handovers is kept while it has containers, and the reason is told.
func TestEnsureOfBeforeHandovers(t *testing.T) {
	f := &foreign{hello: func() (protocol.HelloResponse, error) {
		return protocol.HelloResponse{Version: protocol.VersionHandover - 1, Build: "v1", KeeperPID: os.Getpid()}, nil
	}, handover: func([]byte) error { t.Error("it is asked for what it does not know"); return nil }}
	cfg, _ := f.listen(t)
	out, err := launch.Ensure(t.Context(), cfg)
	if err != nil || out.Build != "v1" || !strings.Contains(out.Behind, "protocol version 2") || !strings.Contains(out.Behind, "rebooted") {
		t.Errorf("%+v %v", out, err)
	}
}

// One that speaks no protocol of ours goes on as our program all the same, where it can; else both reasons are told.
func TestEnsureWithNothingInCommon(t *testing.T) {
	want, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	handed := atomic.Bool{}
	f := &foreign{}
	cfg, conn := f.listen(t)
	f.hello = func() (protocol.HelloResponse, error) {
		if handed.Load() {
			return n.hello(), nil // of a process that is of our program
		}
		return protocol.HelloResponse{}, fmt.Errorf("%w: this executor (v99) speaks versions 98 to 99", errdefs.ErrFailedPrecondition)
	}
	f.answer(func(program []byte) error {
		if !bytes.Equal(program, want) {
			t.Error("it is to go on as another program than ours")
		}
		return fmt.Errorf("%w: build v9 goes on with estates of versions 1 to 1", errdefs.ErrFailedPrecondition)
	})
	// Nor does it end: it is this process, which overlooks SIGTERM as a keeper does that holds a container.
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, unix.SIGTERM)
	defer signal.Stop(asked)
	defer named(t, "monopod-keeper")()
	cfg.Patience = time.Millisecond
	_, err = launch.Ensure(n.ctx(), cfg)
	<-asked
	for _, want := range []string{"versions 98 to 99", "estates of versions 1 to 1", fmt.Sprintf("process %d", os.Getpid()), "go back to the version", "monopod drain", "reboot"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	f.answer(func([]byte) error {
		handed.Store(true)
		conn().Close()
		return nil
	})
	out, err := launch.Ensure(n.ctx(), cfg)
	if err != nil || out.Former == "" || out.Behind != "" || out.Build != n.hello().Build {
		t.Errorf("%+v %v, want it handed over", out, err)
	}
}

// named gives this process a name, until the returned function is called.
func named(t *testing.T, name string) (undo func()) {
	t.Helper()
	const comm = "/proc/self/comm"
	was := readFile(comm)
	if err := os.WriteFile(comm, []byte(name), 0); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.WriteFile(comm, []byte(was), 0); err != nil {
			t.Error(err)
		}
	}
}

// TestEnsureOutlastsTheEnding: a keeper that has no socket any more, and has the directory still, is about to end.
func TestEnsureOutlastsTheEnding(t *testing.T) {
	newNodeOf(t, func(n *node) {
		if err := os.Mkdir(n.cfg.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		lock, err := os.Create(filepath.Join(n.cfg.Dir, "lock"))
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		ended := false
		defer failpoint.Arm("executor/launch/again", func() error {
			ended = true
			return lock.Close()
		})()
		n.launch()
		if !ended {
			t.Error("two have the directory")
		}
	})
}

// TestEnsureEndsTheIdle: one with which nothing can be spoken, and that refuses the handover, is ended where no container runs, and the installed one started,
// also when the caller or the keeper is killed in between, and when the keeper overlooks the first signal.
func TestEnsureEndsTheIdle(t *testing.T) {
	for _, c := range []struct{ name, step, does string }{
		{"nothing comes between", "", ""},
		{"the caller is killed when it has asked", "executor/launch/terminated", ""},
		{"the caller is killed when the keeper has ended", "executor/launch/ended", ""},
		{"the keeper is killed", "executor/keeper/terminated", "kill-once:"},
		{"the keeper overlooks the first signal", "executor/keeper/terminated", "error-once"},
	} {
		step := c.step
		t.Run(c.name, func(t *testing.T) {
			refuses := failpoint.EnvVar + "=executor/worker/hello=error"
			switch c.does {
			case "kill-once:":
				refuses += "," + step + "=" + c.does + filepath.Join(t.TempDir(), "killed")
			case "error-once":
				refuses += "," + step + "=" + c.does
			}
			name, value, _ := strings.Cut(refuses, "=")
			t.Setenv(name, value)
			n := newNodeOf(t, func(n *node) {
				if _, err := launch.Ensure(n.ctx(), n.cfg); err == nil || !strings.Contains(err.Error(), "executor/worker/hello") {
					t.Fatalf("it speaks with everybody: %v", err)
				}
				t.Setenv(name, "")
				n.cfg.Binary = filepath.Join(t.TempDir(), "monopod-executor")
				if err := os.WriteFile(n.cfg.Binary, []byte("#!/bin/sh\n[ $1 = heir ] && exit 1\nexec "+binary+" \"$@\"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
				if strings.HasPrefix(step, "executor/launch/") {
					disarm := failpoint.Arm(step, func() error {
						eventually(t, "the keeper's end", func() bool { _, err := os.Stat(n.cfg.Socket); return os.IsNotExist(err) })
						return errors.New("killed")
					})
					if _, err := launch.Ensure(n.ctx(), n.cfg); err == nil || !strings.Contains(err.Error(), "killed") {
						t.Fatalf("%v, want it to be killed at %s", err, step)
					}
					disarm()
				}
				n.launch()
			})
			log := readFile(filepath.Join(n.cfg.Dir, "log"))
			if !strings.Contains(log, "ending on SIGTERM") || strings.Contains(log, "becomes the keeper") != (c.does == "kill-once:") {
				t.Error("it was ended in another way")
			}
			if e := n.run(n.bundle("a", nil, "sh", "-c", "exit 3")); e.Code != 3 {
				t.Errorf("exit %+v, want 3", e)
			}
		})
	}
}

func TestEnsureFails(t *testing.T) {
	dir := t.TempDir()
	cfg := launch.Config{Binary: "/no/such/binary", Socket: filepath.Join(dir, "s"), Dir: filepath.Join(dir, "x")}
	if _, err := launch.Ensure(t.Context(), cfg); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), cfg.Binary) {
		t.Errorf("a binary that is not there: %v", err)
	}
	cfg.Binary = binary
	cfg.CgroupPath = "/../x\x00"
	if _, err := launch.Ensure(t.Context(), cfg); err == nil {
		t.Error("a bad cgroup is accepted")
	}
	cfg.Socket = filepath.Join(dir, strings.Repeat("s", 108))
	if _, err := launch.Ensure(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "107") {
		t.Errorf("a path that is too long: %v", err)
	}
}

func TestCallWaitsForExecutor(t *testing.T) {
	n := newNode(t)
	if err := n.c.Shutdown(n.ctx(), protocol.ShutdownRequest{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(n.ctx(), 50*time.Millisecond)
	defer cancel()
	if _, err := n.c.List(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no executor: %v", err)
	}
	done := make(chan error, 1)
	go func() { _, err := n.c.List(n.ctx()); done <- err }()
	n.launch()
	if err := <-done; err != nil {
		t.Error("a call that was made before there was an executor: ", err)
	}
}

// Only root is served, also when the socket's mode lets others in.
func TestOthersAreRefused(t *testing.T) {
	n := newNode(t)
	for _, p := range []string{n.dir, n.cfg.Socket} {
		if err := os.Chmod(p, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	fd := -1
	done := make(chan error, 1)
	go func() {
		// One thread becomes somebody else, connects, and ends with this goroutine.
		runtime.LockOSThread()
		const nobody = 65534
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
			done <- errno
			return
		}
		var err error
		if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: n.cfg.Socket})
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	sock := os.NewFile(uintptr(fd), "socket")
	defer sock.Close()
	if n, err := sock.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("a user who is not root is answered: %d %v", n, err)
	}
	eventually(t, "the refusal is logged", func() bool {
		return strings.Contains(readFile(filepath.Join(n.cfg.Dir, "log")), "user 65534")
	})
}

func TestHelloComesFirst(t *testing.T) {
	n := newNode(t)
	for _, tc := range []struct {
		method string
		body   any
		want   string
	}{
		{protocol.MethodList, struct{}{}, "before Hello"},
		{protocol.MethodHello, protocol.HelloRequest{MinVersion: 7, MaxVersion: 9}, "versions 7 to 9"},
	} {
		sock, err := net.Dial("unix", n.cfg.Socket)
		if err != nil {
			t.Fatal(err)
		}
		c := protocol.NewConn(t.Context(), sock.(*net.UnixConn), protocol.ConnConfig{})
		err = c.Call(n.ctx(), protocol.Outgoing{Method: tc.method, Body: tc.body}, nil)
		if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want FailedPrecondition %q", tc.method, err, tc.want)
		}
		c.Close()
	}
}

// What is no frame ends the connection, and nothing else.
func TestGarbage(t *testing.T) {
	n := newNode(t)
	sock, err := net.Dial("unix", n.cfg.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	if _, err := sock.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	sock.SetReadDeadline(time.Now().Add(patience))
	if _, err := sock.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is kept")
	}
	if _, err := n.c.List(n.ctx()); err != nil {
		t.Error(err)
	}
}

func TestSIGTERMEndsAnIdleKeeper(t *testing.T) {
	n := newNode(t)
	n.start(n.bundle("a", nil, "sleep", "1000"))
	h := n.hello()
	keeper, err := proc.OpenFD(h.KeeperPID)
	if err != nil {
		t.Fatal(err)
	}
	defer keeper.Close()
	if err := keeper.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the refusal is logged", func() bool {
		return strings.Contains(readFile(filepath.Join(n.cfg.Dir, "log")), "SIGTERM ignored")
	})
	n.kill("a", unix.SIGKILL)
	n.exit("a")
	if err := n.c.Delete(n.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := keeper.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := keeper.Wait(n.ctx()); err != nil {
		t.Fatal(err)
	}
	n.down = true
}

func TestShutdownKills(t *testing.T) {
	n := newNode(t)
	n.start(n.bundle("a", nil, "sleep", "1000"))
	if _, err := n.c.Create(n.ctx(), n.bundle("b", nil, "sleep", "1000")); err != nil {
		t.Fatal(err)
	}
	if err := n.c.Shutdown(n.ctx(), protocol.ShutdownRequest{Kill: true}); err != nil {
		t.Fatal(err)
	}
	n.launch() // the next executor of this boot knows how they ended
	for _, id := range []ids.ContainerID{"a", "b"} {
		if e := n.exit(id); e.Code != 137 {
			t.Errorf("%s: exit %+v, want 137", id, e)
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	n := newNode(t)
	c := client.New(client.Config{Socket: n.cfg.Socket})
	defer c.Close()
	var wg sync.WaitGroup
	for i := range 12 {
		id := ids.ContainerID(fmt.Sprint("c", i))
		req := n.bundle(id, nil, "sh", "-c", fmt.Sprintf("echo %d; exit %d", i, i))
		for range 2 { // the second attempt joins the first
			wg.Go(func() {
				if _, err := c.Create(n.ctx(), req); err != nil {
					t.Errorf("%s: %v", id, err)
				}
				if _, err := c.Start(n.ctx(), id); err != nil && !errdefs.IsFailedPrecondition(err) {
					t.Errorf("%s: %v", id, err)
				}
			})
		}
	}
	wg.Wait()
	for i := range 12 {
		id := ids.ContainerID(fmt.Sprint("c", i))
		if e := n.exit(id); e.Code != i {
			t.Errorf("%s: exit %+v, want %d", id, e, i)
		}
	}
}
