package executor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/client"
	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/test/harness"
)

// Containers that attack who starts processes in them.

var powers = []string{"CAP_KILL", "CAP_MKNOD", "CAP_SYS_PTRACE", "CAP_DAC_OVERRIDE", "CAP_CHOWN", "CAP_FOWNER"}

// empowered gives a container capabilities, and a root that it can write to.
func empowered(s *specs.Spec) {
	s.Root.Readonly = false
	s.Process.Capabilities = &specs.LinuxCapabilities{Bounding: powers, Effective: powers, Permitted: powers}
	s.Mounts = append(s.Mounts, specs.Mount{Destination: "/etc", Type: "tmpfs", Source: "tmpfs"})
	// What Kubernetes allows a container's devices: to be made, and a few to be used.
	rule := func(kind string, major, minor *int64, access string) specs.LinuxDeviceCgroup {
		return specs.LinuxDeviceCgroup{Allow: access != "", Type: kind, Major: major, Minor: minor, Access: access}
	}
	s.Linux.Resources.Devices = []specs.LinuxDeviceCgroup{{Access: "rwm"}, rule("c", nil, nil, "m"), rule("b", nil, nil, "m"),
		rule("c", new(int64(1)), new(int64(3)), "rwm")}
}

// ready waits until a container has written a line.
func (n *node) ready(id ids.ContainerID) {
	n.t.Helper()
	path := filepath.Join(n.dir, string(id), "log")
	eventually(n.t, "container "+string(id)+" is ready", func() bool { return strings.Contains(readFile(path), "ready") })
}

// output runs a command in a container without a standard input.
func (n *node) output(ctx context.Context, id ids.ContainerID, execID ids.ExecID, args ...string) (string, protocol.Exit, error) {
	n.t.Helper()
	return n.outputOf(ctx, protocol.ExecRequest{ID: id, ExecID: execID, Stdout: true, Process: &specs.Process{Args: args, Cwd: "/", Env: []string{"PATH=/bin"},
		Capabilities: &specs.LinuxCapabilities{}}})
}

func (n *node) outputOf(ctx context.Context, req protocol.ExecRequest) (string, protocol.Exit, error) {
	n.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		n.t.Fatal(err)
	}
	defer r.Close()
	var raw []byte
	var read sync.WaitGroup
	read.Go(func() { raw, _ = io.ReadAll(r) })
	resp, err := n.c.Exec(ctx, req, w)
	w.Close()
	read.Wait()
	return string(raw), resp.Exit, err
}

// watch counts how often a file is opened. (To look at it with O_PATH opens nothing.)
func watch(t *testing.T, path string) (opened func() int) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_OPEN|unix.IN_DONT_FOLLOW); err != nil {
		t.Fatalf("watch %s: %v", path, err)
	}
	return func() (count int) {
		buf := make([]byte, 4096)
		for {
			n, err := unix.Read(fd, buf)
			if errors.Is(err, unix.EAGAIN) {
				return count
			}
			if err != nil {
				t.Fatal(err)
			}
			for raw := buf[:n]; len(raw) >= unix.SizeofInotifyEvent; count++ {
				raw = raw[unix.SizeofInotifyEvent+int((*unix.InotifyEvent)(unsafe.Pointer(&raw[0])).Len):]
			}
		}
	}
}

// Whatever a container puts at the paths that an exec looks at, nothing of it is opened, and commands go on to run.
func TestHostileDevices(t *testing.T) {
	for name, c := range map[string]struct {
		path, make string
		terminal   string // the error of a terminal; empty: it works
	}{
		"null is the watchdog":         {path: "/dev/null", make: "mknod /dev/null c 10 130"},
		"null is a disk":               {path: "/dev/null", make: "mknod /dev/null b 7 0"},
		"null is a device of a module": {path: "/dev/null", make: "mknod /dev/null c 10 239"},
		"null is a FIFO":               {path: "/dev/null", make: "mkfifo /dev/null"},
		"null is a link":               {path: "/dev/null", make: "ln -s /tmp/target /dev/null; mknod /tmp/target c 10 130"},
		"null is gone":                 {make: "true"},
		"passwd is a device":           {path: "/etc/passwd", make: "mknod /etc/passwd c 10 130"},
		"passwd is a FIFO":             {path: "/etc/passwd", make: "mkfifo /etc/passwd"},
		"ptmx is a device": {path: "/dev/pts/ptmx", make: "rm -f /dev/pts/ptmx; mount -t tmpfs x /dev/pts 2>/dev/null; mknod /dev/pts/ptmx c 10 130",
			terminal: "/dev/pts/ptmx"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.start(n.bundle("a", func(s *specs.Spec) {
				empowered(s)
				if c.terminal != "" { // what an image volume or an emptyDir at /dev is, without any capability
					s.Mounts = slices.DeleteFunc(s.Mounts, func(m specs.Mount) bool { return m.Destination == "/dev/pts" })
				}
			}, "sh", "-c", "mkdir -p /dev/pts; [ $0 = none ] || rm -f $0; [ $0 != none ] || rm -f /dev/null; "+c.make+"; echo ready; exec sleep 1000", orNone(c.path)))
			n.ready("a")
			state, err := n.c.State(n.ctx(), "a")
			if err != nil {
				t.Fatal(err)
			}
			opened := func() int { return 0 }
			if c.path != "" {
				opened = watch(t, fmt.Sprintf("/proc/%d/root%s", state.PID, c.path))
			}
			for i := range 3 {
				out, exit, err := n.output(n.ctx(), "a", ids.ExecID(fmt.Sprint("x", i)), "sh", "-c", "wc -c; echo home $HOME")
				if err != nil || exit.Code != 0 || !strings.HasPrefix(strings.TrimSpace(out), "0") || !strings.Contains(out, "home /") {
					t.Errorf("exec: %q, %+v, %v: want nothing to read, and a home", out, exit, err)
				}
			}
			if c.terminal != "" {
				ours, theirs, err := socketPair()
				if err != nil {
					t.Fatal(err)
				}
				defer ours.Close()
				_, err = n.c.Exec(n.ctx(), protocol.ExecRequest{ID: "a", ExecID: "t", Process: &specs.Process{Args: []string{"true"}, Cwd: "/", Terminal: true,
					Capabilities: &specs.LinuxCapabilities{}, Env: []string{"PATH=/bin"}}}, theirs)
				theirs.Close()
				if err == nil || !strings.Contains(err.Error(), c.terminal) {
					t.Errorf("a terminal: %v, want an error that names %s", err, c.terminal)
				}
			}
			if n := opened(); n > 0 {
				t.Errorf("%s was opened %d times", c.path, n)
			}
			n.kill("a", unix.SIGKILL)
			n.exit("a")
		})
	}
}

func orNone(path string) string {
	if path == "" {
		return "none"
	}
	return path
}

func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs"), nil
}

// A command without streams cannot change the host's /dev/null through the one that it has.
func TestNullIsNotTheHosts(t *testing.T) {
	before, err := os.Stat(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	n.start(n.bundle("a", func(s *specs.Spec) { empowered(s) }, "sh", "-c", "rm /dev/null; echo ready; exec sleep 1000"))
	n.ready("a")
	out, exit, err := n.outputOf(n.ctx(), protocol.ExecRequest{ID: "a", ExecID: "x", Stdout: true, Process: &specs.Process{
		Args: []string{"sh", "-c", "chmod 600 /proc/self/fd/0; echo $?; chown 5 /proc/self/fd/0; echo $?; echo >/proc/self/fd/2; echo $?"}, Cwd: "/", Env: []string{"PATH=/bin"},
		Capabilities: &specs.LinuxCapabilities{Bounding: powers, Effective: powers, Permitted: powers}}})
	if err != nil || exit.Code != 0 || out != "1\n1\n0\n" {
		t.Errorf("%q, %+v, %v: want mode and owner to stay, and writes to be taken", out, exit, err)
	}
	after, err := os.Stat(os.DevNull)
	if err != nil || after.Mode() != before.Mode() {
		t.Errorf("the host's /dev/null has become %v (%v), it was %v", after.Mode(), err, before.Mode())
	}
}

// freeze stops all processes of a container's cgroup, and everything that comes into it.
func (n *node) freeze(id ids.ContainerID, frozen bool) {
	n.t.Helper()
	file, value := "freezer.state", map[bool]string{true: "FROZEN", false: "THAWED"}[frozen]
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		file, value = "cgroup.freeze", map[bool]string{true: "1", false: "0"}[frozen]
	}
	for _, dir := range cgroupDirs(n.cgroup + "/" + string(id)) {
		if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0); err != nil {
				n.t.Fatal(err)
			}
			return
		}
	}
	n.t.Fatalf("container %s is in no cgroup that can be frozen", id)
}

// Starts that cannot come to an end are taken back when their caller gives up, and keep nobody else from anything.
func TestStartsAreTakenBack(t *testing.T) {
	for name, c := range map[string]struct {
		hang func(n *node) func() // and its end
		args []string
		env  string
		cwd  string
		make string
	}{
		"frozen": {hang: func(n *node) func() { n.freeze("a", true); return func() { n.freeze("a", false) } }},
		"stopped by the container": {hang: func(*node) func() { return func() {} },
			make: "(while :; do kill -STOP -1; done) & while :; do kill -STOP -1; done"},
		"a path that hangs":              {env: "PATH=/hang:/bin", args: []string{"hang"}},
		"a program that hangs":           {args: []string{"/hang/hang"}},
		"a working directory that hangs": {cwd: "/hang/hang"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			fs := harness.MountHanging(t, filepath.Join(n.dir, "hang"))
			req := n.bundle("a", func(s *specs.Spec) {
				s.Mounts = append(s.Mounts, specs.Mount{Destination: "/hang", Type: "bind", Source: fs.Dir, Options: []string{"rbind"}})
			}, "sh", "-c", "echo ready; "+or(c.make, "exec sleep 1000"))
			n.start(req)
			n.ready("a")
			n.start(n.bundle("b", nil, "sleep", "1000"))
			thaw := fs.Release
			if c.hang != nil {
				thaw = c.hang(n)
			}
			process := &specs.Process{Args: c.args, Cwd: or(c.cwd, "/"), Env: []string{or(c.env, "PATH=/bin")}, Capabilities: &specs.LinuxCapabilities{}}
			if process.Args == nil {
				process.Args = []string{"sleep", "1000"}
			}
			const many = 50
			var calls sync.WaitGroup
			for i := range many {
				calls.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					if _, err := n.c.Exec(ctx, protocol.ExecRequest{ID: "a", ExecID: ids.ExecID(fmt.Sprint("x", i)), Process: process}); err == nil {
						t.Error("a command was executed")
					}
				})
			}
			calls.Wait()
			// All others are served meanwhile.
			if out, exit, err := n.output(n.ctx(), "b", "x", "echo", "served"); err != nil || exit.Code != 0 || out != "served\n" {
				t.Errorf("another container: %q, %+v, %v", out, exit, err)
			}
			n.kill("b", unix.SIGKILL)
			n.exit("b")
			if err := n.c.Delete(n.ctx(), "b"); err != nil {
				t.Error("another container: ", err)
			}
			worker := n.hello().WorkerPID
			thaw()
			if err := n.c.Kill(n.ctx(), protocol.KillRequest{ID: "a", Signal: int(unix.SIGKILL), All: true}); err != nil {
				t.Error("kill: ", err)
			}
			n.exit("a")
			eventually(t, "nothing is left of what was taken back", func() bool { return len(starting(worker)) == 0 })
		})
	}
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// starting are the children of a worker that have not executed a program, dead ones too.
func starting(worker int) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range all {
		var pid int
		fmt.Sscanf(path, "/proc/%d/stat", &pid)
		if st, err := proc.ReadStat(pid); err == nil && st.PPID == worker && !st.Executed() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// What a container sees of a command before it is executed has no more privileges than the command. It looks at all processes, over and
// over, with CAP_SYS_PTRACE, which would let it take one over.
func TestStartsShowNoPrivileges(t *testing.T) {
	n := newNode(t)
	n.start(n.bundle("a", empowered, "sh", "-c", `echo ready; while :; do for p in /proc/[0-9]*; do
		read -r _ name <$p/status; [ "$name" != monopod-start ] || { echo "seen $(sed -n 's/^CapPrm:\t//p' $p/status)"; }; done; done 2>/dev/null`))
	n.ready("a")
	log := filepath.Join(n.dir, "a", "log")
	path := func() []string {
		var seen []string
		for line := range strings.Lines(readFile(log)) {
			if _, caps, ok := strings.Cut(line, "seen "); ok && strings.TrimSpace(caps) != "" {
				seen = append(seen, strings.TrimSpace(caps))
			}
		}
		return seen
	}
	for i, deadline := 0, time.Now().Add(patience); len(path()) == 0 && time.Now().Before(deadline); i++ {
		if _, _, err := n.output(n.ctx(), "a", ids.ExecID(fmt.Sprint("x", i)), "true"); err != nil {
			t.Fatal(err)
		}
	}
	seen := path()
	if len(seen) == 0 {
		t.Fatal("no command was seen before it was executed")
	}
	for _, caps := range seen {
		if caps != "0000000000000000" { // those of n.output's commands
			t.Errorf("a command was seen with the capabilities %s", caps)
		}
	}
	n.kill("a", unix.SIGKILL)
	n.exit("a")
}

// A program's name does not make its exit another's.
func TestNameForgesNoStartError(t *testing.T) {
	n := newNode(t)
	dir := filepath.Join(n.dir, "bin")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"monopod-start", "monopod:start", "runc:[2:INIT]"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\nexit 255\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range []string{"monopod-start", "monopod:start", "runc:[2:INIT]"} {
		e := n.run(n.bundle(ids.ContainerID(fmt.Sprint("c", i)), func(s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/tmp/bin", Type: "bind", Source: dir, Options: []string{"bind"}})
		}, "/tmp/bin/"+name))
		if e.Code != 255 || e.Reason != "" {
			t.Errorf("%s: exit %+v, want the program's own 255", name, e)
		}
	}
}

// A specification without capabilities gives none.
func TestNoCapabilitiesAreNone(t *testing.T) {
	n := newNode(t)
	n.run(n.bundle("a", func(s *specs.Spec) { s.Process.Capabilities = nil }, "sh", "-c", "while read -r l; do echo \"$l\"; done </proc/self/status"))
	status := strings.Join(texts(readLog(t, filepath.Join(n.dir, "a", "log"))), "\n")
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		if !strings.Contains(status, set+":\t0000000000000000") {
			t.Errorf("%s is not empty:\n%s", set, status)
		}
	}
}

// The zygote may be killed, or stopped, at any time: the next start has another one.
func TestZygoteIsKilled(t *testing.T) {
	n := newNode(t)
	for i := range 3 {
		n.run(n.bundle(ids.ContainerID(fmt.Sprint("c", i)), nil, "true"))
		zygotes := starting(n.hello().WorkerPID)
		zygote := zygoteOf(t, n.hello().WorkerPID)
		if len(zygotes) > 0 {
			t.Errorf("processes of starts that are over: %v", zygotes)
		}
		if err := unix.Kill(zygote, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		awaitEnd(t, zygote)
	}
	var starts sync.WaitGroup
	for i := range 8 {
		starts.Go(func() { n.c.Create(n.ctx(), n.bundle(ids.ContainerID(fmt.Sprint("d", i)), nil, "true")) }) // it may be lost with the zygote
	}
	if err := unix.Kill(zygoteOf(t, n.hello().WorkerPID), unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		t.Fatal(err)
	}
	starts.Wait()
	n.run(n.bundle("e", nil, "true"))
}

// zygoteOf waits until a worker has a zygote, and returns it.
func zygoteOf(t *testing.T, worker int) (pid int) {
	t.Helper()
	eventually(t, "the worker has a zygote", func() bool {
		all, _ := filepath.Glob("/proc/[0-9]*/stat")
		for _, path := range all {
			fmt.Sscanf(path, "/proc/%d/stat", &pid)
			if st, err := proc.ReadStat(pid); err == nil && st.PPID == worker && st.Comm == "monopod-zygote" && !st.Dead() {
				return true
			}
		}
		return false
	})
	return pid
}

// Neither the zygote nor what it starts has anything of other containers in its memory: that of the zygote is looked through.
func TestZygoteHasNoSecrets(t *testing.T) {
	n := newNode(t)
	const secret = "a-secret-that-nobody-else-has"
	n.start(n.bundle("a", func(s *specs.Spec) { s.Process.Env = append(s.Process.Env, "SECRET="+secret) }, "sleep", "1000"))
	if _, _, err := n.outputOf(n.ctx(), protocol.ExecRequest{ID: "a", ExecID: "x", Stdout: true, Process: &specs.Process{Args: []string{"true"}, Cwd: "/",
		Env: []string{"PATH=/bin", "SECRET=" + secret}, Capabilities: &specs.LinuxCapabilities{}}}); err != nil {
		t.Fatal(err)
	}
	pid := zygoteOf(t, n.hello().WorkerPID)
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	looked := 0
	for line := range strings.Lines(readFile(fmt.Sprintf("/proc/%d/maps", pid))) {
		var from, to int64
		if _, err := fmt.Sscanf(line, "%x-%x rw", &from, &to); err != nil {
			continue
		}
		buf := make([]byte, to-from)
		if _, err := mem.ReadAt(buf, from); err != nil {
			continue
		}
		looked += len(buf)
		if bytes.Contains(buf, []byte(secret)) {
			t.Errorf("the zygote has a container's secret at %s", line)
		}
	}
	if looked == 0 {
		t.Error("nothing of the zygote's memory could be read")
	}
	n.kill("a", unix.SIGKILL)
	n.exit("a")
}

// A caller that is gone takes its command along, at whatever point it was.
func TestCallerGoesWhileStarting(t *testing.T) {
	n := newNode(t)
	n.start(n.bundle("a", nil, "sleep", "1000"))
	for i := range 40 {
		c := client.New(client.Config{Socket: n.cfg.Socket})
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*100*time.Microsecond)
		c.Exec(ctx, protocol.ExecRequest{ID: "a", ExecID: ids.ExecID(fmt.Sprint("x", i)), Process: &specs.Process{Args: []string{"sleep", "1000"}, Cwd: "/", Env: []string{"PATH=/bin"},
			Capabilities: &specs.LinuxCapabilities{}}})
		cancel()
		c.Close()
	}
	state, err := n.c.State(n.ctx(), "a")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "only the container's own process is left", func() bool {
		for _, dir := range cgroupDirs(n.cgroup + "/a") {
			if strings.TrimSpace(readFile(filepath.Join(dir, "cgroup.procs"))) != fmt.Sprint(state.PID) {
				return false
			}
		}
		return len(starting(n.hello().WorkerPID)) == 0
	})
	n.kill("a", unix.SIGKILL)
	n.exit("a")
}

// Nobody but who has CAP_SYS_PTRACE comes to the memory of keeper, worker and zygote: a process that is not dumpable belongs to root below /proc, and a
// user of the same id finds its files closed.
func TestMemoryIsHidden(t *testing.T) {
	n := newNode(t)
	n.run(n.bundle("a", nil, "true"))
	h := n.hello()
	for what, pid := range map[string]int{"keeper": h.KeeperPID, "worker": h.WorkerPID, "zygote": zygoteOf(t, h.WorkerPID)} {
		cmd := exec.Command("busybox", "head", "-c", "1", fmt.Sprintf("/proc/%d/environ", pid))
		// Root by its number, and no capability: only PR_SET_DUMPABLE stands between them.
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}}
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "ermission denied") {
			t.Errorf("the %s's environment can be read: %q, %v", what, out, err)
		}
		if limit := readFile(fmt.Sprintf("/proc/%d/coredump_filter", pid)); limit == "" {
			t.Errorf("the %s has ended", what)
		}
	}
}

// A first process whose place has files that hang is given up, whatever makes it, and leaves nothing.
func TestCreateIsTakenBack(t *testing.T) {
	t.Setenv("MONOPOD_EXECUTOR_PATIENCE", "2s")
	n := newNode(t)
	fs := harness.MountHanging(t, filepath.Join(n.dir, "hang"))
	begin := time.Now()
	var creates sync.WaitGroup
	for id, hostname := range map[ids.ContainerID]string{"native": "", "libcontainer": "h"} {
		req := n.bundle(id, func(s *specs.Spec) {
			s.Hostname = hostname // which is not native's to set
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/hang", Type: "bind", Source: fs.Dir, Options: []string{"rbind"}})
			s.Process.Cwd = "/hang/hang"
		}, "true")
		creates.Go(func() {
			if _, err := n.c.Create(n.ctx(), req); err == nil || !strings.Contains(err.Error(), "deadline exceeded") {
				t.Errorf("%s: create: %v, want an error that tells that it took too long", id, err)
			}
			t.Logf("%s: given up after %s", id, time.Since(begin))
		})
	}
	creates.Wait()
	worker := n.hello().WorkerPID
	fs.Release()
	eventually(t, "nothing is left of them", func() bool { return len(starting(worker)) == 0 })
	for _, id := range []ids.ContainerID{"native", "libcontainer"} {
		eventually(t, "the same id can be made again", func() bool {
			_, err := n.c.Create(n.ctx(), n.bundle(id, nil, "sh", "-c", "exit 3"))
			return err == nil
		})
		if _, err := n.c.Start(n.ctx(), id); err != nil {
			t.Error(err)
		}
		if e := n.exit(id); e.Code != 3 {
			t.Errorf("the same id again: %+v", e)
		}
	}
}
