package escape

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// cgroupsOf are the cgroups of a process as the host sees them, by the controllers.
func (n *node) cgroupsOf(pid int) map[string]string {
	n.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	n.check(err)
	all := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		all[part[1]] = part[2]
	}
	return all
}

// TestCVE2025_47291: a pod with users of its own is in no cgroup of the node's, so that it may take all memory and all processes, whatever its limits.
//
// The attacker would have won if its first process, or a command, was in a cgroup elsewhere than that of a pod without such users is, if the limit of its
// memory was not written there, or if it could take more.
func TestCVE2025_47291(t *testing.T) {
	n := startNode(t)
	n.check(os.Chmod(n.host.Dir, 0o711)) // as /run is: the pod's root has to pass it
	n.onEachEngine(func(n *node) {
		ids := []*cri.IDMapping{{HostId: 1_000_000, Length: 1 << 16}}
		const limit = 64 << 20
		withUsers := func(c *cri.PodSandboxConfig) {
			c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: ids, Gids: ids}
		}
		own, err := n.tryPod(withUsers)
		if err != nil && strings.Contains(err.Error(), "user namespace") {
			n.Skipf("this host, or this engine, has no user namespaces for pods: %v", err)
		}
		n.check(err)
		launch := func(p *pod, script string) *container {
			cfg := shell(script)
			cfg.Linux.Resources = &cri.LinuxContainerResources{MemoryLimitInBytes: limit}
			if p == own {
				cfg.Linux.SecurityContext.NamespaceOptions.UsernsOptions = own.cfg.Linux.SecurityContext.NamespaceOptions.UsernsOptions
			}
			return p.launch(cfg)
		}
		plain := n.pod(nil)
		ordinary, c := launch(plain, sleeper), launch(own, sleeper)
		_, err = c.tryExec(60, "sh", "-c", "sleep 3600 >/dev/null 2>&1 & echo started")
		n.check(err)
		place := func(c *container) map[string]string {
			all := n.cgroupsOf(c.process())
			for controller, path := range all { // of the pod, wherever the box has put the node
				all[controller] = strings.NewReplacer(c.pod.id, "POD", c.id, "CONTAINER").Replace(path)
			}
			return all
		}
		want, has := place(ordinary), place(c)
		if fmt.Sprint(want) != fmt.Sprint(has) {
			n.Errorf("with users of its own the container is in\n%v\nand without them in\n%v", has, want)
		}
		for _, pid := range n.processesBelow(c) {
			if got, want := fmt.Sprint(n.cgroupsOf(pid)), fmt.Sprint(n.cgroupsOf(c.process())); got != want {
				n.Errorf("the process %d of the container is in %s, its first one in %s", pid, got, want)
			}
		}
		if st := launch(own, "tail /dev/zero").wait(); st.GetExitCode() != 137 || st.GetReason() != "OOMKilled" {
			n.Errorf("who takes more memory than its limit ends with %d, %s", st.GetExitCode(), st.GetReason())
		}
	})
}

// processesBelow are those that are in the PID namespace of a container.
func (n *node) processesBelow(c *container) (pids []int) {
	n.Helper()
	own, err := os.Readlink(filepath.Join("/proc", itoa(c.process()), "ns/pid"))
	n.check(err)
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		var pid int
		if ns, err := os.Readlink(dir + "/ns/pid"); err == nil && ns == own {
			if _, err := fmt.Sscan(filepath.Base(dir), &pid); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// TestCVE2023_25809: a container writes to the host's tree of cgroups, where it is shown without a namespace of its own: it makes cgroups, takes the limits of
// its own back, and lets the kernel start a program on the host when a cgroup is empty (release_agent).
//
// The attacker, as root with CAP_SYS_ADMIN, would have won if he wrote to one file there, or saw a cgroup that is not his.
func TestCVE2023_25809(t *testing.T) {
	onEachEngine(t, nil, func(n *node) {
		for _, users := range []bool{false, true} {
			p, err := n.tryPod(func(c *cri.PodSandboxConfig) {
				if ids := []*cri.IDMapping{{HostId: 1_000_000, Length: 1 << 16}}; users {
					c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: ids, Gids: ids}
				}
			})
			if err != nil && users && strings.Contains(err.Error(), "user namespace") {
				n.Logf("no user namespaces here: %v", err)
				continue
			}
			n.check(err)
			n.check(os.Chmod(n.host.Dir, 0o711))
			cfg := shell(sleeper)
			if users {
				cfg.Linux.SecurityContext.NamespaceOptions.UsernsOptions = p.cfg.Linux.SecurityContext.NamespaceOptions.UsernsOptions
			} else {
				able(cfg, "DAC_OVERRIDE")
			}
			c := p.launch(cfg)
			const try = `cd /sys/fs/cgroup || exit 1
				for f in $(find . -type f -perm -200 2>/dev/null); do (echo 1 > $f) 2>/dev/null && echo "wrote $f"; done
				for d in $(find . -type d 2>/dev/null); do mkdir $d/evil 2>/dev/null && echo "made $d/evil"; done
				[ ! -e cgroup.controllers ] || grep -v ':/$' /proc/self/cgroup | sed 's/^/sees /'; true`
			out := c.exec("sh", "-c", try)
			if n.engine == "runc" || users { // libcontainer's folder of hierarchies (version 1) is a tmpfs with nothing of the host's in it, and writable
				out = strings.TrimSpace(strings.Replace(out, "made ./evil", "", 1))
			}
			if out != "" {
				n.Errorf("with users of its own (%v) a container\n%s", users, out)
			}
		}
	})
}
