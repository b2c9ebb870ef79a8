package executor_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
)

// podInit is a request for a pod's init, with a file to pin it at.
func (n *node) podInit(id ids.ContainerID) protocol.InitRequest {
	n.t.Helper()
	pin := filepath.Join(n.dir, string(id)+".pid")
	if err := os.WriteFile(pin, nil, 0o600); err != nil {
		n.t.Fatal(err)
	}
	return protocol.InitRequest{ID: id, CgroupPath: n.cgroup + "/" + string(id), Pin: pin}
}

func (n *node) startInit(req protocol.InitRequest) int {
	n.t.Helper()
	resp, err := n.c.Init(n.ctx(), req)
	if err != nil {
		n.t.Fatal("init: ", err)
	}
	return resp.PID
}

// in makes a container join a pod's PID namespace.
func in(req protocol.InitRequest) func(*specs.Spec) {
	return func(s *specs.Spec) {
		for i, ns := range s.Linux.Namespaces {
			if ns.Type == specs.PIDNamespace {
				s.Linux.Namespaces[i].Path = req.Pin
			}
		}
		caps := []string{"CAP_KILL", "CAP_SYS_PTRACE", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH"}
		s.Process.Capabilities = &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps}
	}
}

// children returns the pids, as the host has them, of a process's children.
func children(pid int) []string {
	return strings.Fields(readFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)))
}

// status returns a line of /proc/PID/status.
func status(pid int, name string) string {
	for line := range strings.Lines(readFile(fmt.Sprintf("/proc/%d/status", pid))) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// The containers of a pod that shares its PID namespace see each other, and an init that they can neither end nor use.
func TestPodInit(t *testing.T) {
	n := newNode(t)
	pod := n.podInit("pod")
	pid := n.startInit(pod)
	if again := n.startInit(pod); again != pid {
		t.Errorf("init again: pid %d, want %d", again, pid)
	}
	if s, err := n.c.State(n.ctx(), "pod"); err != nil || s.Kind != protocol.KindPodInit || s.Phase != protocol.Running || s.PID != pid {
		t.Errorf("state %+v %v, want a running PodInit with pid %d", s, err, pid)
	}
	if h := n.hello(); status(pid, "PPid") != itoa(h.WorkerPID) {
		t.Errorf("the init's parent is %s, want the worker, %d", status(pid, "PPid"), h.WorkerPID)
	}
	eventually(t, "it can do nothing but sleep", func() bool { return status(pid, "Seccomp") == "2" })
	for name, want := range map[string]string{"Name": "pod-init", "Uid": "65535\t65535\t65535\t65535", "Groups": "", "Threads": "1",
		"CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapBnd": "0000000000000000", "CapAmb": "0000000000000000",
		"NoNewPrivs": "1", "SigBlk": "fffffffffffbfeff", "SigCgt": "0000000000000000"} {
		got := status(pid, name)
		if name == "SigBlk" { // all but the two that cannot be, and glibc's own
			got, want = got[len(got)-4:], "feff"
		}
		if got != want {
			t.Errorf("the init's %s is %q, want %q", name, got, want)
		}
	}
	if fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err != nil || len(fds) > 0 {
		t.Errorf("the init has the descriptors %v (%v), want none", fds, err)
	}
	for _, dir := range cgroupDirs(pod.CgroupPath) {
		if got := strings.Fields(readFile(filepath.Join(dir, "cgroup.procs"))); !slices.Equal(got, []string{itoa(pid)}) {
			t.Errorf("%s holds %v, want the init %d", dir, got, pid)
		}
	}
	// Orphans go to the init, and leave no zombies.
	orphan := n.bundle("orphan", in(pod), "sh", "-c", "(sh -c 'sleep 0.05; exit 3' & sleep 1000 &); exec sleep 1000")
	n.start(orphan)
	if got, want := cgroupDirs(pod.CgroupPath), cgroupDirs(n.cgroup+"/orphan"); len(got) != len(want) {
		t.Errorf("the init is in the cgroups %v, a container in %v", got, want)
	}
	eventually(t, "an orphan is the init's, and one that ended is gone", func() bool { return len(children(pid)) == 1 })
	req := n.bundle("a", in(pod), "sh", "-c", `
		for s in TERM INT HUP QUIT CHLD KILL STOP SEGV USR1 ALRM; do kill -$s 1; done
		readlink /proc/1/exe >/dev/null || echo "no /proc/1/exe"
		echo root: $(busybox ls -A /proc/1/root/) $(busybox grep -c . /proc/1/mountinfo)
		echo x > /proc/1/root/x || echo read-only
		echo net: $(busybox tail -n +3 /proc/1/net/dev | busybox cut -d: -f1)
		echo fds: $(busybox ls -A /proc/1/fd/)
		echo name: $(cat /proc/1/comm)`)
	n.run(req)
	want := []string{"root: 1", "read-only", "net: lo", "fds:", "name: pod-init"}
	var got []string
	for _, l := range readLog(t, req.LogPath) {
		if l.stream == "stdout" {
			got = append(got, l.text)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the pod sees %q, want %q\nall: %q", got, want, readFile(req.LogPath))
	}
	if status(pid, "State") != "S (sleeping)" {
		t.Errorf("the init's state is %s after signals from the pod", status(pid, "State"))
	}
	// From outside nothing but SIGKILL ends it either.
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGSEGV, unix.SIGCHLD, unix.SIGUSR1} {
		n.kill("pod", sig)
	}
	n.refusePodInit(pod)
	if s, err := n.c.State(n.ctx(), "pod"); err != nil || s.Phase != protocol.Running || s.PID != pid {
		t.Errorf("state %+v %v, want Running with pid %d", s, err, pid)
	}
}

// refusePodInit checks what cannot be done with a pod's init, and which inits cannot be made.
func (n *node) refusePodInit(pod protocol.InitRequest) {
	t := n.t
	if _, err := n.c.Exec(n.ctx(), protocol.ExecRequest{ID: pod.ID, ExecID: "x", Process: process("true")}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("exec: %v, want InvalidArgument", err)
	}
	if err := n.c.Delete(n.ctx(), pod.ID); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("delete while it runs: %v, want FailedPrecondition", err)
	}
	if _, err := n.c.Create(n.ctx(), protocol.CreateRequest{ID: pod.ID, Bundle: n.dir}); !errdefs.IsAlreadyExists(err) {
		t.Errorf("create of its id: %v, want AlreadyExists", err)
	}
	other := n.podInit("other")
	for name, tc := range map[string]struct {
		change func(*protocol.InitRequest)
		is     func(error) bool
	}{
		"another pin":        {func(r *protocol.InitRequest) { r.ID = pod.ID }, errdefs.IsAlreadyExists},
		"id":                 {func(r *protocol.InitRequest) { r.ID = "../x" }, errdefs.IsInvalidArgument},
		"relative cgroup":    {func(r *protocol.InitRequest) { r.CgroupPath = "x" }, errdefs.IsInvalidArgument},
		"root cgroup":        {func(r *protocol.InitRequest) { r.CgroupPath = "/" }, errdefs.IsInvalidArgument},
		"pin missing":        {func(r *protocol.InitRequest) { r.Pin += ".no" }, errdefs.IsInvalidArgument},
		"pin is a directory": {func(r *protocol.InitRequest) { r.Pin = n.dir }, errdefs.IsInvalidArgument},
		"no user namespace":  {func(r *protocol.InitRequest) { r.UserNamespace = r.Pin }, func(err error) bool { return err != nil }},
	} {
		req := other
		tc.change(&req)
		if _, err := n.c.Init(n.ctx(), req); !tc.is(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := n.c.State(n.ctx(), "other"); !errdefs.IsNotFound(err) {
		t.Errorf("a failed init left: %v", err)
	}
	for _, dir := range cgroupDirs(other.CgroupPath) {
		t.Errorf("a failed init left the cgroup %s", dir)
	}
}

// The end of the init is the end of all processes in its namespace, and is told.
func TestPodInitDies(t *testing.T) {
	n := newNode(t)
	pod := n.podInit("pod")
	n.startInit(pod)
	n.start(n.bundle("a", in(pod), "sh", "-c", "trap '' TERM; sleep 1000 & sleep 1000"))
	n.kill("pod", unix.SIGKILL)
	if e := n.exit("a"); e.Code != 137 || e.Reason != "" {
		t.Errorf("the container's exit %+v, want 137", e)
	}
	if e := n.exit("pod"); e.Code != 137 || e.Reason != "" {
		t.Errorf("the init's exit %+v, want 137", e)
	}
	if _, err := n.c.Init(n.ctx(), pod); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("init after its end: %v, want FailedPrecondition", err)
	}
	b := n.bundle("b", in(pod), "true")
	if _, err := n.c.Create(n.ctx(), b); err == nil {
		t.Error("a container was created in a dead namespace")
	}
	for range 2 {
		if err := n.c.Delete(n.ctx(), "pod"); err != nil {
			t.Error("delete: ", err)
		}
	}
	if mounts := readFile("/proc/self/mounts"); strings.Contains(mounts, " "+pod.Pin+" ") {
		t.Error("deleted, it is still pinned")
	}
	pid := n.startInit(pod) // the id and the pin are free
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if e := n.exit("pod"); e.Code != 137 {
		t.Errorf("exit %+v, want 137", e)
	}
}

// Worker, and keeper and worker at once, are killed under a pod's init.
func TestPodInitOutlivesTheExecutor(t *testing.T) {
	n := newNode(t)
	pod, doomed := n.podInit("pod"), n.podInit("doomed")
	pid := n.startInit(pod)
	n.startInit(doomed)
	n.start(n.bundle("a", in(pod), "sleep", "1000"))
	n.killWorker()
	if again := n.startInit(pod); again != pid {
		t.Errorf("after the worker's death: pid %d, want %d", again, pid)
	}
	n.kill("doomed", unix.SIGKILL)
	if e := n.exit("doomed"); e.Code != 137 || e.Reason != "" { // the keeper reaps it
		t.Errorf("exit %+v, want 137", e)
	}
	h := n.hello()
	halt(t, h.KeeperPID)
	unix.Kill(h.WorkerPID, unix.SIGKILL)
	unix.Kill(h.KeeperPID, unix.SIGKILL)
	awaitEnd(t, h.WorkerPID)
	awaitEnd(t, h.KeeperPID)
	n.launch()
	if s, err := n.c.State(n.ctx(), "pod"); err != nil || s.Phase != protocol.Running || s.PID != pid || s.Kind != protocol.KindPodInit {
		t.Errorf("state %+v %v, want Running with pid %d", s, err, pid)
	}
	if e := n.run(n.bundle("b", in(pod), "sh", "-c", "exec busybox test $(cat /proc/1/comm) = pod-init")); e.Code != 0 {
		t.Errorf("a container that joins: exit %+v", e)
	}
	n.kill("pod", unix.SIGKILL)
	if e := n.exit("pod"); e.Code != 137 && e.Reason != protocol.ReasonUnknown {
		t.Errorf("exit %+v, want 137 (where the kernel tells) or 255 Unknown", e)
	}
	n.exit("a")
}

// With the worker killed at each of its steps, the caller's retry succeeds and nothing is left.
func TestPodInitAtEachStep(t *testing.T) {
	for _, point := range []string{"init/held", "init/pinned", "journalled", "deleting"} {
		t.Run(point, func(t *testing.T) {
			t.Setenv(failpoint.EnvVar, "executor/worker/"+point+"=kill") // armed in the first worker only
			n := newNode(t)
			before := n.hello()
			pod := n.podInit("pod")
			n.startInit(pod)
			// The worker may be killed before it answers, and a signal is not sent again.
			err := n.c.Kill(n.ctx(), protocol.KillRequest{ID: "pod", Signal: int(unix.SIGKILL)})
			if err != nil && !errdefs.IsUnavailable(err) {
				t.Error("kill: ", err)
			}
			if e := n.exit("pod"); e.Code != 137 || e.Reason != "" {
				t.Errorf("exit %+v, want 137", e)
			}
			if err := n.c.Delete(n.ctx(), "pod"); err != nil {
				t.Error("delete: ", err)
			}
			if n.hello().WorkerPID == before.WorkerPID {
				t.Error("the worker was not killed")
			}
		})
	}
}

// The PID namespace of a pod with a user namespace belongs to it.
func TestPodInitInUserNamespace(t *testing.T) {
	n := newNode(t)
	const base = 200000
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: base, Size: 65536}}
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	pod := n.podInit("pod")
	pod.UserNamespace = fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid)
	pid := n.startInit(pod)
	if got, want := status(pid, "Uid"), fmt.Sprint(base+65535); !strings.HasPrefix(got, want) {
		t.Errorf("the init's ids are %q, want %s", got, want)
	}
	ns, err := os.Open(pod.Pin)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	owner, err := unix.IoctlRetInt(int(ns.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		t.Fatal("the PID namespace's owner: ", err)
	}
	defer unix.Close(owner)
	var got, want unix.Stat_t
	if err := unix.Fstat(owner, &got); err != nil {
		t.Fatal(err)
	}
	if err := unix.Stat(pod.UserNamespace, &want); err != nil {
		t.Fatal(err)
	}
	if got.Ino != want.Ino {
		t.Errorf("the PID namespace belongs to user namespace %d, want %d", got.Ino, want.Ino)
	}
	n.kill("pod", unix.SIGKILL)
	n.exit("pod")
}

// What a pod's init costs, beside other ones.
func TestPodInitIsSmall(t *testing.T) {
	n := newNode(t)
	const pods = 10
	var total, private int
	var pids []int
	begin := time.Now()
	for i := range pods {
		pids = append(pids, n.startInit(n.podInit(ids.ContainerID(fmt.Sprint("pod", i)))))
	}
	each := time.Since(begin) / pods
	for _, pid := range pids {
		eventually(t, "it sleeps", func() bool { return strings.HasPrefix(status(pid, "State"), "S") && status(pid, "Seccomp") == "2" })
		for line := range strings.Lines(readFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))) {
			var kb int
			if _, err := fmt.Sscanf(line, "Pss: %d kB", &kb); err == nil {
				total += kb
			}
			if _, err := fmt.Sscanf(line, "Private_Dirty: %d kB", &kb); err == nil {
				private += kb
			}
		}
	}
	t.Logf("a pod's init: %d kB PSS, of it %d kB its own, made in %s", total/pods, private/pods, each.Round(10*time.Microsecond))
	const limit = 30
	if total == 0 || total/pods > limit && !raceEnabled {
		t.Errorf("%d kB PSS a pod's init, want at most %d", total/pods, limit)
	}
	for i := range pods {
		n.kill(ids.ContainerID(fmt.Sprint("pod", i)), unix.SIGKILL)
		n.exit(ids.ContainerID(fmt.Sprint("pod", i)))
	}
}
