package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/host/cgroup"
	"monopod.dev/monopod/internal/host/mount"
	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/state"
	"monopod.dev/monopod/test/harness"
)

// editTable changes records of a table as JSON objects, as no code of this version would.
func (n *node) editTable(table string, edit func(map[string]any)) {
	n.Helper()
	tab := state.NewTable[map[string]any](n.db, table)
	recs, err := tab.List()
	n.check(err)
	for id, rec := range recs {
		edit(rec)
		n.check(tab.Put(id, rec))
	}
}

func (n *node) address(sandbox string) netip.Addr {
	n.Helper()
	ip, err := netip.ParseAddr(n.sandboxStatus(sandbox).GetNetwork().GetIp())
	n.check(err)
	return ip
}

func TestRestartChangesNothing(t *testing.T) {
	n := newNode(t)
	sb := n.run("kept")
	ip := n.address(sb)
	running := n.launch(sb, shell("running", sleeper))
	pid := n.exec(running, "cat", "/proc/1/stat")
	created := n.create(sb, shell("created", "exit 6"))
	ended := n.launch(sb, shell("ended", "exit 5"))
	n.wait(ended)
	gap := n.launch(sb, shell("gap", "trap 'echo last words; exit 9' USR1; touch /tmp/ready; while :; do sleep 3600 & wait; done"))
	n.eventually("the trap", func() bool { return strings.Contains(n.exec(gap, "ls", "/tmp"), "ready") })

	n.stopServing()
	n.check(n.executor.Kill(n.ctx, protocol.KillRequest{ID: ids.ContainerID(gap), Signal: 10}))
	n.awaitExecutor(gap, protocol.Exited)
	n.closeAll()
	n.start()

	if st := n.sandboxStatus(sb); st.GetState() != cri.PodSandboxState_SANDBOX_READY || n.address(sb) != ip {
		t.Errorf("sandbox %v, had the address %s", st, ip)
	}
	if got := n.exec(running, "cat", "/proc/1/stat"); strings.Fields(got)[21] != strings.Fields(pid)[21] {
		t.Error("the running container was restarted")
	}
	if st := n.status(gap); st.GetState() != cri.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 9 {
		t.Errorf("ended in the gap: %v", st)
	}
	if lines := n.logLines(n.status(gap).GetLogPath()); !strings.HasSuffix(lines[len(lines)-1], "F last words") {
		t.Errorf("log %q", lines)
	}
	if st := n.status(ended); st.GetExitCode() != 5 {
		t.Error(st)
	}
	n.check(n.tryStart(created))
	if st := n.wait(created); st.GetExitCode() != 6 {
		t.Error(st)
	}
	if id := n.create(sb, shell("running", sleeper)); id != running {
		t.Errorf("a retry after the restart made %s", id)
	}
	n.check(n.tryStop(running, 10))
	n.removeSandbox(sb)
}

// awaitExecutor waits for a phase of a container, without a server.
func (n *node) awaitExecutor(id string, phase protocol.Phase) {
	n.Helper()
	n.eventually("the executor to say "+string(phase), func() bool {
		s, err := n.executor.State(n.ctx, ids.ContainerID(id))
		return err == nil && s.Phase == phase
	})
}

// crash ends the server while f is at the failpoint, as a kill would, and starts another one; what f does later on finds
// everything closed.
func (n *node) crash(point string, f func()) {
	n.Helper()
	reached, release := make(chan struct{}), make(chan struct{})
	disarm := failpoint.Arm(point, func() error { close(reached); <-release; return errors.New("the process is dead") })
	n.Cleanup(func() { close(release) })
	go f()
	select {
	case <-reached:
	case <-n.ctx.Done():
		n.Fatalf("%s was not reached", point)
	}
	disarm()
	n.restart()
}

// wantAddresses: so many addresses are in use, as soon as the interfaces of stopped sandboxes are gone.
func (n *node) wantAddresses(want int) {
	n.Helper()
	harness.Eventually(n, fmt.Sprintf("%d addresses are in use", want), func() (bool, string) {
		leases, err := state.NewTable[any](n.db, "network-addresses").List()
		return err == nil && len(leases) == want, fmt.Sprint(leases, err)
	})
}

// leftIn lists a folder of the node's, but for what is being removed in the background.
func (n *node) leftIn(dir string) []string {
	n.Helper()
	left, err := filepath.Glob(filepath.Join(n.dir, dir, "*"))
	n.check(err)
	return slices.DeleteFunc(left, func(path string) bool { return filepath.Base(path) == tree.BinName })
}

// wantNothing: there is no container, and no folder or pin of one.
func (n *node) wantNothing() {
	n.Helper()
	if list, err := n.rt.ListContainers(n.ctx, &cri.ListContainersRequest{}); err != nil || len(list.GetContainers()) != 0 {
		n.Errorf("containers: %v, %v", list, err)
	}
	if held, err := n.executor.List(n.ctx); err != nil || len(held) != 0 {
		n.Errorf("the executor holds %v, %v", held, err)
	}
	for _, dir := range []string{"data/containers", "run/containers"} {
		if left := n.leftIn(dir); len(left) != 0 {
			n.Errorf("left in %s: %v", dir, left)
		}
	}
	if pins, err := n.images.Pins(n.ctx); err != nil || len(pins) != 0 {
		n.Errorf("images are pinned by %v, %v", pins, err)
	}
}

// TestFailedStepsAreUndone: an error at each step of a Run or a Create leaves nothing, and frees the name.
func TestFailedStepsAreUndone(t *testing.T) {
	n := newNode(t)
	fail := func() error { return errors.New("made to fail") }
	for _, point := range slices.DeleteFunc(steps()[0].points, func(p string) bool { return p == "runtime/sandbox-run/ready" }) {
		disarm := failpoint.Arm(point, fail)
		if _, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: n.sandboxConfig("f")}); err == nil || !strings.Contains(err.Error(), "made to fail") {
			t.Errorf("%s: %v", point, err)
		}
		disarm()
		if left, err := filepath.Glob(filepath.Join(n.dir, "run/sandboxes/*")); err != nil || len(left) != 0 {
			t.Errorf("%s left %v, %v", point, left, err)
		}
	}
	sb := n.run("f")
	for _, point := range slices.DeleteFunc(steps()[1].points, func(p string) bool { return p == "runtime/container-create/stored" }) {
		disarm := failpoint.Arm(point, fail)
		if _, err := n.tryCreate(sb, shell("f", sleeper)); err == nil || !strings.Contains(err.Error(), "made to fail") {
			t.Errorf("%s: %v", point, err)
		}
		disarm()
		n.wantNothing()
	}
	n.launch(sb, shell("f", sleeper))
}

func TestUnknownContainerIsEnded(t *testing.T) {
	n := newNode(t)
	sb := n.run("u")
	id := n.launch(sb, shell("u", sleeper))
	n.stopServing()
	n.check(state.NewTable[any](n.db, "containers").Delete(id))
	n.check(os.Remove(filepath.Join(n.dir, "run/containers", id, "record.json")))
	n.closeAll()
	n.start()
	n.wantNothing()
}

// TestLostRecords: what runs goes on, and is known again, when its records are lost or damaged.
func TestLostRecords(t *testing.T) {
	for name, damage := range map[string]func(*node){
		"the state file is lost": func(n *node) {
			n.closeAll()
			n.check(os.Remove(filepath.Join(n.dir, "data/state/runtime.db")))
		},
		"the state file is damaged": func(n *node) {
			n.closeAll()
			n.check(os.WriteFile(filepath.Join(n.dir, "data/state/runtime.db"), []byte(strings.Repeat("rubbish ", 4096)), 0o600))
		},
		"the records are rubbish": func(n *node) {
			for _, table := range []string{"containers", "sandboxes"} {
				tab := state.NewTable[json.RawMessage](n.db, table)
				recs, err := tab.List()
				n.check(err)
				for id := range recs {
					n.check(tab.Put(id, json.RawMessage(`{"id": 7}`)))
				}
			}
			n.closeAll()
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			sb := n.run("lost")
			ip := n.address(sb)
			id := n.launch(sb, shell("running", sleeper))
			ended := n.launch(sb, shell("ended", "exit 3"))
			n.wait(ended)
			n.stopServing()
			damage(n)
			n.start()
			for range 2 {
				if st := n.sandboxStatus(sb); st.GetState() != cri.PodSandboxState_SANDBOX_READY || n.address(sb) != ip {
					t.Errorf("sandbox %v, had %s", st, ip)
				}
				if st := n.status(id); st.GetState() != cri.ContainerState_CONTAINER_RUNNING || st.GetMetadata().GetName() != "running" || st.GetImageRef() == "" {
					t.Error(st)
				}
				if st := n.status(ended); st.GetState() != cri.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 3 {
					t.Error(st)
				}
				if other := n.address(n.run("other")); other == ip {
					t.Errorf("the address %s was given away", ip)
				}
				n.exec(id, "true")
				n.restart()
			}
			n.removeSandbox(sb)
		})
	}
	t.Run("there is no copy either", func(t *testing.T) {
		n := newNode(t)
		sb := n.run("lost")
		ip := n.address(sb)
		id, stray := n.launch(sb, shell("running", sleeper)), n.launch(sb, shell("stray", sleeper))
		n.stopServing()
		n.check(state.NewTable[any](n.db, "containers").Delete(stray))
		n.check(os.Remove(filepath.Join(n.dir, "run/containers", stray, "record.json")))
		good := map[string]json.RawMessage{}
		for _, rec := range []struct{ table, id, dir string }{{"containers", id, "run/containers"}, {"sandboxes", sb, "run/sandboxes"}} {
			tab := state.NewTable[json.RawMessage](n.db, rec.table)
			var err error
			good[rec.table], err = tab.Get(rec.id)
			n.check(err)
			n.check(tab.Put(rec.id, json.RawMessage(`{"id": 7}`)))
			n.check(os.Remove(filepath.Join(n.dir, rec.dir, rec.id, "record.json")))
		}
		n.closeAll()
		n.start()
		if s, err := n.executor.State(n.ctx, ids.ContainerID(id)); err != nil || s.Phase != protocol.Running {
			t.Errorf("a container was dropped with its record: %v, %v", s, err)
		}
		if s, err := n.executor.State(n.ctx, ids.ContainerID(stray)); err == nil {
			t.Errorf("a container without any record lives on because another one's cannot be read: %v", s)
		}
		if other := n.address(n.run("other")); other == ip {
			t.Errorf("the address %s of a living sandbox was given away", ip)
		}
		n.stopServing() // a person repairs the records
		n.check(state.NewTable[json.RawMessage](n.db, "containers").Put(id, good["containers"]))
		n.check(state.NewTable[json.RawMessage](n.db, "sandboxes").Put(sb, good["sandboxes"]))
		n.closeAll()
		n.start()
		n.exec(id, "true")
		if n.address(sb) != ip {
			t.Errorf("it had %s", ip)
		}
	})
}

// TestRecordsOfANewerVersion: what a newer monopod has stored is left as it is, to the byte, and what lives of it goes on; the newer one
// finds it again. A copy counts as little as the record, be it as new or older.
func TestRecordsOfANewerVersion(t *testing.T) {
	n := newNode(t)
	sb := n.run("newer")
	ip := n.address(sb)
	id, intended := n.launch(sb, shell("running", sleeper)), n.launch(sb, shell("half-made", sleeper))
	n.stopServing()
	type stored struct{ table, copies, id, record, copy, newer, newerCopy string }
	all := []*stored{{table: "sandboxes", copies: "run/sandboxes", id: sb}, {table: "containers", copies: "run/containers", id: id}, {table: "containers", copies: "run/containers", id: intended}}
	read := func(s *stored) (record, copied string) {
		raw, err := state.NewTable[json.RawMessage](n.db, s.table).Get(s.id)
		if s.id != intended {
			n.check(err)
		}
		file, err := os.ReadFile(filepath.Join(n.dir, s.copies, s.id, "record.json"))
		n.check(err)
		return string(raw), string(file)
	}
	write := func(s *stored, record, copied string) {
		tab := state.NewTable[json.RawMessage](n.db, s.table)
		if s.id == intended {
			n.check(tab.Delete(s.id))
		} else {
			n.check(tab.Put(s.id, json.RawMessage(record)))
		}
		n.check(os.WriteFile(filepath.Join(n.dir, s.copies, s.id, "record.json"), []byte(copied), 0o600))
	}
	newer := strings.NewReplacer(`{"version":1,`, `{"version":2,"new":[1],`)
	for _, s := range all {
		s.record, s.copy = read(s)
		s.newer, s.newerCopy = newer.Replace(s.record), newer.Replace(s.copy)
		if s.table == "sandboxes" {
			s.newerCopy = s.copy
		}
		if s.newer == s.record || s.id != sb && s.newerCopy == s.copy {
			t.Fatalf("what is stored of %s %s has no version: %s and %s", s.table, s.id, s.record, s.copy)
		}
		write(s, s.newer, s.newerCopy)
	}
	n.closeAll()
	n.start()
	for range 2 {
		for _, id := range []string{id, intended} {
			if s, err := n.executor.State(n.ctx, ids.ContainerID(id)); err != nil || s.Phase != protocol.Running {
				t.Errorf("a container was dropped with its record: %v, %v", s, err)
			}
			_, err := n.rt.ContainerStatus(n.ctx, &cri.ContainerStatusRequest{ContainerId: id})
			wantCode(t, err, codes.NotFound, id)
		}
		_, err := n.rt.PodSandboxStatus(n.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: sb})
		wantCode(t, err, codes.NotFound, sb)
		if other := n.address(n.run("other")); other == ip {
			t.Errorf("the address %s of a living sandbox was given away", ip)
		}
		n.restart()
	}
	n.stopServing()
	for _, s := range all {
		if record, copied := read(s); s.id != intended && record != s.newer || copied != s.newerCopy {
			t.Errorf("%s %s was rewritten:\n%s\n%s", s.table, s.id, record, copied)
		}
	}
	for _, s := range all { // the newer one would know them
		if s.id == intended {
			n.check(state.NewTable[json.RawMessage](n.db, s.table).Put(s.id, json.RawMessage(s.record)))
			continue
		}
		write(s, s.record, s.copy)
	}
	n.closeAll()
	n.start()
	n.exec(id, "true")
	n.exec(intended, "true")
	if n.address(sb) != ip {
		t.Errorf("it had %s", ip)
	}
}

// TestReboot: nothing of another boot runs, and nothing is made up about how it ended.
func TestReboot(t *testing.T) {
	n := newNode(t)
	sb := n.run("boot")
	running, created, ended := n.launch(sb, shell("running", sleeper)), n.create(sb, shell("created", sleeper)), n.launch(sb, shell("ended", "exit 4"))
	n.wait(ended)
	n.stopServing()
	// What a reboot takes: the executor with its containers, mounts, namespaces, links, cgroups, and the run directory.
	n.check(n.executor.Shutdown(n.ctx, protocol.ShutdownRequest{Kill: true}))
	n.check(mount.UnmountBelow(filepath.Join(n.dir, "run")))
	n.check(tree.Remove(context.Background(), filepath.Join(n.dir, "run")))
	link, err := netlink.LinkByName(n.bridgeName)
	n.check(err)
	n.check(netlink.LinkDel(link))
	host, err := cgroup.Detect()
	n.check(err)
	n.check(host.RemoveTree(n.cgroupRoot + "/pods"))
	for _, table := range []string{"containers", "sandboxes"} {
		n.editTable(table, func(rec map[string]any) { rec["bootID"] = "another boot" })
	}
	n.closeAll()
	n.start()
	if st := n.sandboxStatus(sb); st.GetState() != cri.PodSandboxState_SANDBOX_NOTREADY || st.GetNetwork().GetIp() != "" {
		t.Error(st)
	}
	for _, id := range []string{running, created} {
		if st := n.status(id); st.GetState() != cri.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 255 || st.GetReason() != "Unknown" || st.GetMessage() == "" {
			t.Error(st)
		}
	}
	if st := n.status(ended); st.GetExitCode() != 4 || st.GetReason() != "Error" {
		t.Error(st)
	}
	n.wantAddresses(0)
	if id := n.launch(n.run("after"), shell("c", sleeper)); n.status(id).GetState() != cri.ContainerState_CONTAINER_RUNNING {
		t.Error(n.status(id))
	}
	_, err = n.tryCreate(sb, shell("late", sleeper))
	wantCode(t, err, codes.FailedPrecondition, sb)
	n.remove(created)
	n.removeSandbox(sb)
	if left, err := filepath.Glob(filepath.Join(n.dir, "data/containers/[^.]*")); err != nil || len(left) != 1 {
		t.Errorf("writable layers: %v, %v; want that of the new container", left, err)
	}
}

// TestDeepLayer: what a container has made in its layer, at whatever depth, is removed when nobody waits for it any more, and after a kill in between by the next
// process; with few descriptors.
func TestDeepLayer(t *testing.T) {
	n := newNode(t)
	sb := n.run("deep")
	first, second := n.launch(sb, shell("first", "exit 0")), n.launch(sb, shell("second", "exit 0"))
	n.wait(first)
	n.wait(second)
	layers := filepath.Join(n.dir, "data/containers")
	deepen := func(dir string) {
		t.Helper()
		at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		n.check(err)
		for range 1000 {
			n.check(unix.Mkdirat(at, "d", 0o700))
			next, err := unix.Openat(at, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			n.check(err)
			unix.Close(at)
			at = next
		}
		unix.Close(at)
	}
	deepen(filepath.Join(layers, first, "upper"))
	deepen(filepath.Join(layers, second, "upper"))
	n.remove(first)
	if _, err := os.Lstat(filepath.Join(layers, first)); !os.IsNotExist(err) {
		t.Errorf("a layer of a container that was removed: %v", err)
	}
	// One that was thrown away when the process ended, and one that has not come that far.
	n.stop()
	n.check(os.MkdirAll(filepath.Join(layers, tree.BinName), 0o700))
	n.check(os.Rename(filepath.Join(layers, second, "upper"), filepath.Join(layers, tree.BinName, "thrown")))
	stray := filepath.Join(layers, "stray")
	n.check(os.Mkdir(stray, 0o700))
	deepen(stray)
	n.start()
	if _, err := os.Lstat(stray); !os.IsNotExist(err) {
		t.Errorf("the layer of no container: %v", err)
	}
	n.eventually("the layers are gone", func() bool {
		left, err := os.ReadDir(filepath.Join(layers, tree.BinName))
		return err == nil && len(left) == 0
	})
}

// TestExecutorLost: a container that the executor has lost, with its directory, has ended unseen. Processes that it has left
// end with the container.
func TestExecutorLost(t *testing.T) {
	n := newNode(t)
	id := n.launch(n.run("gone"), shell("c", sleeper))
	host, err := cgroup.Detect()
	n.check(err)
	held, err := n.executor.State(n.ctx, ids.ContainerID(id))
	n.check(err)
	n.stopServing()
	// Keeper and worker start each other anew: they are gone when their cgroup, which is this test's own, is empty.
	n.eventually("the executor to be gone", func() bool {
		pids, err := host.Processes(n.cgroupRoot + "/executor")
		n.check(err)
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
		}
		return len(pids) == 0
	})
	n.closeAll()
	n.check(os.RemoveAll(filepath.Join(n.dir, "run/executor")))
	n.start()
	if st := n.status(id); st.GetState() != cri.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 255 || st.GetReason() != "Unknown" {
		t.Error(st)
	}
	n.remove(id)
	// Its parent is gone, so that it is the machine's init that takes it away.
	n.eventually("the process to be reaped", func() bool { return syscall.Kill(held.PID, 0) != nil })
	if pids, err := host.Processes(n.cgroupRoot + "/pods"); err != nil || len(pids) != 0 {
		t.Errorf("processes are left: %v, %v", pids, err)
	}
}

// TestNetworkNamespaceGone: a sandbox whose network namespace somebody has taken away is not ready. What runs in it goes on, with its
// address, until it is stopped.
func TestNetworkNamespaceGone(t *testing.T) {
	n := newNode(t)
	sb, idle := n.run("gone"), n.run("idle")
	running, ended := n.launch(sb, shell("running", sleeper)), n.launch(sb, shell("ended", "exit 3"))
	n.wait(ended)
	ip := n.address(sb)
	for range 2 { // the second start finds a sandbox that is not ready already
		n.stop()
		for _, id := range []string{sb, idle} {
			n.check(mount.UnmountBelow(filepath.Join(n.dir, "run/sandboxes", id, "ns")))
		}
		n.start()
		for _, id := range []string{sb, idle} {
			if st := n.sandboxStatus(id); st.GetState() != cri.PodSandboxState_SANDBOX_NOTREADY {
				t.Error(st)
			}
		}
		n.wantAddresses(1) // nothing can use that of the idle one
		if st := n.status(running); st.GetState() != cri.ContainerState_CONTAINER_RUNNING {
			t.Error(st)
		}
		if got := n.exec(running, "ip", "-o", "address"); !strings.Contains(got, ip.String()+"/") {
			t.Errorf("the running container has %s, and had %s", got, ip)
		}
		_, err := n.tryCreate(sb, shell("late", sleeper))
		wantCode(t, err, codes.FailedPrecondition, sb)
	}
	if other := n.address(n.run("other")); other == ip {
		t.Errorf("the address %s of a container that runs was given away", ip)
	}
	_, err := n.rt.StopPodSandbox(n.ctx, &cri.StopPodSandboxRequest{PodSandboxId: sb})
	n.check(err)
	if st := n.status(running); st.GetState() != cri.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 137 {
		t.Error(st)
	}
	n.wantAddresses(1) // that of the other one
	n.removeSandbox(sb)
	n.removeSandbox(idle)
}

// TestStopInterrupted: a container that outlives a stop which a crash cut short keeps its address.
func TestStopInterrupted(t *testing.T) {
	n := newNode(t)
	sb := n.run("half")
	id := n.launch(sb, shell("c", sleeper))
	ip := n.address(sb)
	stop := func() error {
		_, err := n.rt.StopPodSandbox(n.ctx, &cri.StopPodSandboxRequest{PodSandboxId: sb})
		return err
	}
	n.crash("runtime/sandbox-stop/persisted", func() { _ = stop() })
	if st := n.status(id); st.GetState() != cri.ContainerState_CONTAINER_RUNNING {
		t.Error(st)
	}
	if got := n.exec(id, "ip", "-o", "address"); !strings.Contains(got, ip.String()+"/") {
		t.Errorf("it has %s, and had %s", got, ip)
	}
	n.wantAddresses(1)
	n.crash("runtime/sandbox-stop/containers", func() { _ = stop() })
	n.wantAddresses(0) // nothing runs: the start has finished it
	n.check(stop())
}
