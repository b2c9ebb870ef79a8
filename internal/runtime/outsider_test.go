package runtime_test

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/test/harness"
)

// evil makes, in a container, a program that runs as root for whoever executes it.
const evil = "cp /bin/busybox /evil && chmod 4755 /evil && cp /bin/busybox /dev/shm/evil && chmod 4777 /dev/shm/evil && chmod 0777 / /dev/shm && touch /done; " + sleeper

// asEvil makes a command by which the outsider executes the program. The kernel makes it root's then; that busybox drops this again for most
// of what it can do is its own decision.
func asEvil(path string) *exec.Cmd {
	cmd := harness.AsOutsider(path)
	cmd.Args = []string{"busybox", "id", "-u"}
	return cmd
}

// passages are the directories of a node that everybody passes, because the roots of user namespaces have to, and what else is meant to be
// reached.
func (n *node) passages() map[string]string {
	const pass = "pass or execute"
	return map[string]string{filepath.Join(n.dir, "run"): pass, filepath.Join(n.dir, "run/containers"): pass}
}

// wantClosed fails the test if somebody from outside reaches anything of the node.
func (n *node) wantClosed(leastPaths int) {
	n.Helper()
	reached, tried := harness.ReachedByOutsider(n.TB, filepath.Join(n.dir, "run"), filepath.Join(n.dir, "data"))
	if tried < leastPaths {
		n.Errorf("only %d paths were tried", tried)
	}
	n.Logf("%d paths were tried", tried)
	meant := n.passages()
	const shown = 20
	wrong := 0
	for _, path := range slices.Sorted(maps.Keys(reached)) {
		if how := reached[path]; meant[path] != how {
			if wrong++; wrong <= shown {
				n.Errorf("user %d can %s %s", harness.Outsider, how, path)
			}
		}
		delete(meant, path)
	}
	if wrong > shown {
		n.Errorf("and %d more", wrong-shown)
	}
	for path := range meant {
		n.Errorf("%s cannot be passed by the roots of user namespaces", path)
	}
}

// TestNobodyPassesFromOutside: whatever containers write and whatever images hold, no other user of the host reaches it by a path.
func TestNobodyPassesFromOutside(t *testing.T) {
	n := withRunc(t)
	n.check(os.Chmod(n.dir, 0o755)) // as /run and /var/lib are
	n.loadData()
	vol := filepath.Join(n.dir, "vol")
	n.check(os.Mkdir(vol, 0o755))

	cfg := shell("evil", evil)
	cfg.Mounts = []*cri.Mount{{HostPath: vol, ContainerPath: "/vol"}, {HostPath: n.dir, ContainerPath: "/all"}, imageMount("/image", data, "")}
	bad := n.launch(n.run("plain"), cfg)
	hostIPC := n.sandboxConfig("host-ipc")
	hostIPC.Linux.SecurityContext.NamespaceOptions.Ipc = cri.NamespaceMode_NODE
	resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: hostIPC})
	n.check(err)
	n.launch(resp.GetPodSandboxId(), shell("ipc", sleeper))
	oci, err := n.runWith("oci", "runc")
	n.check(err)
	all := map[string]string{"native": bad, "runc": n.launch(oci, shell("evil", evil))}
	if n.features().GetUserNamespaces() {
		all["native, user namespace"] = n.launch(n.runUser("user"), userShell("evil", evil))
		ociUser, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: n.userPod("oci-user"), RuntimeHandler: "runc"})
		n.check(err)
		all["runc, user namespace"] = n.launch(ociUser.GetPodSandboxId(), userShell("evil", evil))
	}
	n.create(n.run("created"), shell("waits", sleeper))
	n.wait(n.launch(n.run("ended"), shell("ended", "cp /bin/busybox /evil; chmod 4755 /evil")))
	for what, id := range all {
		n.eventually("the program of "+what, func() bool { return strings.Contains(n.exec(id, "ls", "/"), "done") })
	}

	n.wantClosed(100)
	shm, err := filepath.Glob(filepath.Join(n.dir, "run/sandboxes/*/*/shm/evil"))
	if n.check(err); len(shm) != len(all) {
		t.Errorf("in the shared memories: %v", shm)
	}
	for what, id := range all {
		for _, path := range append([]string{filepath.Join(n.dir, "run/containers", id, "rootfs/evil"), filepath.Join(n.dir, "data/containers", id, "upper/evil")}, shm...) {
			st, err := os.Stat(path)
			if n.check(err); st.Mode()&os.ModeSetuid == 0 || st.Mode()&0o001 == 0 {
				t.Errorf("%s: %s is no setuid program: %v", what, path, st.Mode())
			}
			if out, err := asEvil(path).CombinedOutput(); !errors.Is(err, unix.EACCES) {
				t.Errorf("%s: user %d has executed %s, which runs as root: %s, %v", what, harness.Outsider, path, out, err)
			}
		}
	}
	n.restart()
	n.wantClosed(100)
}

// TestDirectoriesOfOlderVersions: what an earlier version has left open is closed at the start, and what runs goes on.
func TestDirectoriesOfOlderVersions(t *testing.T) {
	n := newNode(t)
	n.check(os.Chmod(n.dir, 0o755))
	sb := n.run("old")
	id := n.launch(sb, shell("evil", evil))
	n.eventually("the program", func() bool { return strings.Contains(n.exec(id, "ls", "/"), "done") })
	n.stop()
	old := unix.Umask(0)
	defer unix.Umask(old)
	for _, dir := range []string{"data", "data/containers", "data/containers/" + id, "data/containers/" + id + "/work", "data/images",
		"run", "run/containers", "run/containers/" + id, "run/sandboxes", "run/sandboxes/" + sb} {
		n.check(os.Chmod(filepath.Join(n.dir, dir), 0o711))
	}
	n.check(os.Chmod(filepath.Join(n.dir, "data/images"), 0o755))
	if out, err := asEvil(filepath.Join(n.dir, "data/containers", id, "upper/evil")).Output(); err != nil {
		t.Errorf("this is not how it was with older versions: %q, %v", out, err)
	}
	n.start()
	n.wantClosed(50)
	if got := n.exec(id, "id", "-u"); got != "0" {
		t.Error(got)
	}
	n.launch(sb, shell("new", sleeper))
	n.removeSandbox(sb)
	n.wantNothing()
}

// TestPodFillsItsOwnFilesOnly: what a pod writes into hosts, hostname and resolv.conf takes no room of the run directory.
func TestPodFillsItsOwnFilesOnly(t *testing.T) {
	n := newNode(t)
	host := n.sandboxConfig("host")
	host.Hostname = ""
	host.Linux.SecurityContext.NamespaceOptions = &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER, Ipc: cri.NamespaceMode_NODE, Network: cri.NamespaceMode_NODE}
	resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: host})
	n.check(err)
	for sb, c := range map[string]struct {
		limit uint64
		ns    *cri.NamespaceOption
	}{
		n.run("own"):           {65 << 20, nil},
		resp.GetPodSandboxId(): {4 << 20, host.Linux.SecurityContext.NamespaceOptions}, // with the host's own /etc/hosts and resolv.conf
	} {
		before := n.used("run")
		cfg := shell("filler", "cat /etc/hosts /etc/hostname /etc/resolv.conf > /before; for f in hosts hostname resolv.conf; do dd if=/dev/zero of=/etc/$f bs=1M count=100 2>/dev/null && echo no limit; done; echo end; "+sleeper)
		if c.ns != nil {
			cfg.Linux.SecurityContext.NamespaceOptions = c.ns
		}
		id := n.launch(sb, cfg)
		n.eventually("the files to be full", func() bool {
			return strings.HasSuffix(n.logLines(n.status(id).GetLogPath())[len(n.logLines(n.status(id).GetLogPath()))-1], " end")
		})
		if lines := n.logLines(n.status(id).GetLogPath()); len(lines) != 1 {
			t.Errorf("the pod wrote 100 MB into one of its files: %q", lines)
		}
		if now := n.used("run"); now > before+1<<20 {
			t.Errorf("the run directory has %d bytes more", now-before)
		}
		var st unix.Statfs_t
		n.check(unix.Statfs(filepath.Join(n.dir, "run/sandboxes", sb, "tmpfs"), &st))
		if size := st.Blocks * uint64(st.Bsize); size > c.limit || st.Type != unix.TMPFS_MAGIC {
			t.Errorf("the pod's files are in a file system of type %#x with %d bytes, want a tmpfs of at most %d", st.Type, size, c.limit)
		}
		n.removeSandbox(sb)
	}
	n.wantNothing()
}

// used is how much the files of one of the node's directories take themselves, without what is mounted in it.
func (n *node) used(dir string) (sum uint64) {
	n.Helper()
	var top unix.Stat_t
	n.check(unix.Lstat(filepath.Join(n.dir, dir), &top))
	n.check(filepath.WalkDir(filepath.Join(n.dir, dir), func(path string, _ os.DirEntry, err error) error {
		var st unix.Stat_t
		if err != nil || unix.Lstat(path, &st) != nil {
			return nil // it has gone meanwhile
		}
		if st.Dev != top.Dev {
			return filepath.SkipDir
		}
		sum += uint64(st.Blocks) * 512
		return nil
	}))
	return sum
}
