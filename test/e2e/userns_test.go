package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/test/harness"
)

// ownUsers is a pod with users of its own. Its containers end when they are told to, so that they are started again.
const ownUsers = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "NAME", "labels": {"color": "red"}}, "spec": {
	"hostUsers": false, "terminationGracePeriodSeconds": 1, "securityContext": {"fsGroup": 2000},
	"volumes": [
		{"name": "scratch", "emptyDir": {}}, {"name": "memory", "emptyDir": {"medium": "Memory"}}, {"name": "host", "hostPath": {"path": "HOST"}},
		{"name": "conf", "configMap": {"name": "conf"}}, {"name": "secret", "secret": {"secretName": "secret"}},
		{"name": "image", "image": {"reference": "IMAGE", "pullPolicy": "IfNotPresent"}},
		{"name": "info", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}}],
	"containers": [
		{"name": "root", "image": "IMAGE", "command": ["sh", "-c", "trap 'exit 1' TERM; while :; do sleep 1 & wait $!; done"], "volumeMounts": MOUNTS},
		{"name": "user", "image": "IMAGE", "command": ["sh", "-c", "trap 'exit 1' TERM; while :; do sleep 1 & wait $!; done"], "volumeMounts": MOUNTS,
			"securityContext": {"runAsUser": 1000, "procMount": "Unmasked"}}]}}`

const ownMounts = `[{"name": "scratch", "mountPath": "/scratch"}, {"name": "memory", "mountPath": "/memory"}, {"name": "host", "mountPath": "/host"},
	{"name": "conf", "mountPath": "/conf"}, {"name": "secret", "mountPath": "/secret"}, {"name": "info", "mountPath": "/info"},
	{"name": "scratch", "mountPath": "/part", "subPath": "part"}, {"name": "image", "mountPath": "/image"},
	{"name": "host", "mountPath": "/follows", "mountPropagation": "HostToContainer"}]`

// users is a node whose pods may have users of their own.
type users struct {
	*testing.T
	n    *harness.Node
	host string // the folder that pods see at /host
}

// TestUserNamespaces: a pod with hostUsers: false has root of its own, who is nobody else on the host, and its files are whose they would be without.
func TestUserNamespaces(t *testing.T) {
	n := harness.NewNode(t, harness.Options{})
	if err := os.Chmod(n.Dir, 0o711); err != nil { // as /run is: the pod's root has to pass it
		t.Fatal(err)
	}
	n.Start()
	n.LoadImage(archive(t))
	u := &users{T: t, n: n, host: t.TempDir()}
	u.mount(u.host)
	if err := unix.Mount("", u.host, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(u.host, "f")
	if err := os.WriteFile(file, []byte("of the host\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(file, 1000, 3000); err != nil {
		t.Fatal(err)
	}
	n.Apply(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf"}, "data": {"k": "from the map\n"}}`)
	n.Apply(`{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "secret"}, "stringData": {"k": "from the secret\n"}}`)
	if !u.possible() {
		return
	}
	n.Apply(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "greedy"}, "spec": {"hostUsers": false,
		"volumes": [{"name": "d", "emptyDir": {"sizeLimit": "2Mi"}}],
		"containers": [{"name": "c", "image": "` + busybox + `", "command": ["sh", "-c", "` + overflow("/d/f") + `"], "volumeMounts": [{"name": "d", "mountPath": "/d"}]}]}}`)
	u.apply("one")
	u.apply("two")
	one, two := u.first("one"), u.first("two")
	if one == two {
		t.Errorf("both pods have the IDs from %s on", one)
	}
	t.Run("processes", func(t *testing.T) { u.in(t).testProcesses(one) })
	t.Run("files", func(t *testing.T) { u.in(t).testFiles() })
	t.Run("all of proc", func(t *testing.T) { u.in(t).testProc() })
	t.Run("users that there are not", func(t *testing.T) { u.in(t).testBeyond() })
	t.Run("a debugger", func(t *testing.T) { u.in(t).testDebugger(one) })
	t.Run("a message at the end", func(t *testing.T) { u.in(t).testMessage() })
	t.Run("a crash of the node", func(t *testing.T) { u.in(t).testCrash(one) })
	t.Run("limits of the disk", func(t *testing.T) {
		n.Kubectl("wait", "--for=jsonpath={.status.reason}=Evicted", "pod/greedy", "--timeout=120s")
	})
	t.Run("freed", func(t *testing.T) {
		u := u.in(t)
		n.Kubectl("delete", "pod", "one", "--timeout=60s")
		u.apply("three")
		if three := u.first("three"); three != one {
			t.Errorf("the next pod has the IDs from %s on, want those of the one that is gone, %s", three, one)
		}
		if got := u.first("two"); got != two {
			t.Errorf("the other one has the IDs from %s on, want %s", got, two)
		}
	})
}

func (u *users) in(t *testing.T) *users {
	in := *u
	in.T = t
	return &in
}

// mount mounts a file system in memory until the test ends.
func (u *users) mount(path string) {
	u.Helper()
	if err := unix.Mount("tmpfs", path, "tmpfs", 0, "mode=755"); err != nil {
		u.Fatal(err)
	}
	u.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			u.Error(err)
		}
	})
}

// possible says whether the node's kernel can give pods user namespaces. Where it cannot, a pod that wants one is told, and does not start.
func (u *users) possible() bool {
	var node corev1.Node
	if err := json.Unmarshal([]byte(u.n.Kubectl("get", "node", u.n.Name, "-o", "json")), &node); err != nil {
		u.Fatal(err)
	}
	for _, h := range node.Status.RuntimeHandlers {
		if h.Name == "" && h.Features != nil && h.Features.UserNamespaces != nil && *h.Features.UserNamespaces {
			return true
		}
	}
	u.Log("this host has no user namespaces for pods")
	u.n.Apply(u.manifest("none"))
	harness.Eventually(u, "an event tells of it", func() (bool, string) {
		out := u.n.Kubectl("get", "events", "--field-selector=reason=FailedCreatePodSandBox,involvedObject.name=none", "-o=jsonpath={.items[*].message}")
		return strings.Contains(out, "runtime does not support user namespaces"), out
	})
	return false
}

func (u *users) manifest(name string) string {
	return strings.NewReplacer("NAME", name, "IMAGE", busybox, "HOST", u.host, "MOUNTS", ownMounts).Replace(ownUsers)
}

func (u *users) apply(name string) {
	u.Helper()
	u.n.Apply(u.manifest(name))
	u.n.Kubectl("wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s")
}

// sh runs a script in a container of the pod.
func (u *users) sh(pod, container, script string) string {
	u.Helper()
	return u.n.Kubectl("exec", pod, "-c", container, "--", "sh", "-c", script)
}

// first is the ID on the host that 0 of the pod is.
func (u *users) first(pod string) string {
	u.Helper()
	map0 := strings.Fields(u.sh(pod, "root", "cat /proc/self/uid_map"))
	if len(map0) != 3 || map0[0] != "0" || map0[1] == "0" || map0[2] != "65536" {
		u.Fatalf("%s: the map of users is %q", pod, map0)
	}
	if gids := strings.Fields(u.sh(pod, "user", "cat /proc/self/gid_map")); strings.Join(gids, " ") != strings.Join(map0, " ") {
		u.Errorf("%s: the map of groups is %q, that of users %q", pod, gids, map0)
	}
	return map0[1]
}

// testProcesses: who is root in the pod is nobody on the host, and what is told of users is what the pod sees.
func (u *users) testProcesses(first string) {
	var low uint32
	if _, err := fmt.Sscan(first, &low); err != nil {
		u.Fatal(err)
	}
	maps, err := filepath.Glob("/proc/[0-9]*/uid_map")
	if err != nil {
		u.Fatal(err)
	}
	owners := map[uint32]bool{}
	for _, path := range maps {
		raw, err := os.ReadFile(path)
		if f := strings.Fields(string(raw)); err != nil || len(f) != 3 || f[1] != first { // it has ended, or is somebody else's
			continue
		}
		var st unix.Stat_t
		if err := unix.Stat(filepath.Dir(path), &st); err == nil {
			owners[st.Uid] = true
		}
	}
	if !owners[low] || !owners[low+1000] || len(owners) != 2 {
		u.Errorf("the processes of the pod are, on the host, %v", owners)
	}
	if got := u.sh("one", "root", "id -u; id -G"); got != "0\n0 10 2000\n" && got != "0\n0 2000\n" {
		u.Errorf("root is %q", got)
	}
	if got := u.sh("one", "user", "id -u; id -G"); !strings.HasPrefix(got, "1000\n") || !strings.Contains(got, "2000") {
		u.Errorf("the user is %q", got)
	}
	var p corev1.Pod
	getPod(u.T, u.n, "one", &p)
	for _, s := range p.Status.ContainerStatuses {
		want := map[string]int64{"root": 0, "user": 1000}[s.Name]
		if s.User == nil || s.User.Linux == nil || s.User.Linux.UID != want {
			u.Errorf("the status tells of %s: %+v", s.Name, s.User)
		}
	}
}

// testFiles: files belong to whom they would belong to in a pod without users of its own, on both sides.
func (u *users) testFiles() {
	const token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	const files = "/scratch /part /memory /conf/k /secret/k /info/labels /etc/hosts /etc/resolv.conf /etc/hostname /dev/termination-log /host/f /follows/f /image/etc/passwd"
	want := `0:2000 /scratch
0:2000 /part
0:2000 /memory
0:2000 /conf/k
0:2000 /secret/k
0:2000 /info/labels
0:0 /etc/hosts
0:0 /etc/resolv.conf
0:0 /etc/hostname
0:0 /dev/termination-log
1000:3000 /host/f
1000:3000 /follows/f
0:0 /image/etc/passwd
`
	for _, container := range []string{"root", "user"} {
		if got := u.sh("one", container, "stat -L -c '%u:%g %n' "+files); got != want {
			u.Errorf("%s sees\n%s, want\n%s", container, got, want)
		}
		if got := u.sh("one", container, "cat /conf/k /secret/k /info/labels /host/f"); got != "from the map\nfrom the secret\ncolor=\"red\"of the host\n" {
			u.Errorf("%s reads %q", container, got)
		}
		if got := u.sh("one", container, "stat -L -c '%a %u:%g' "+token+"; [ -s "+token+" ] && head -c 1 "+token+" > /dev/null && echo read"); got != "640 0:2000\nread\n" {
			u.Errorf("%s: its token is %q", container, got)
		}
		u.sh("one", container, "for d in /scratch /part /memory; do echo mine > $d/"+container+"; done; echo 10.1.1.1 other >> /etc/hosts || true")
	}
	u.sh("one", "root", "echo mine > /host/root; chown 7:8 /host/root; mkdir /host/late")
	u.mount(filepath.Join(u.host, "late"))
	if got := u.sh("one", "user", "stat -c '%u:%g' /host/late /follows/late"); got != "0:0\n65534:65534\n" { // what is mounted later is not translated
		u.Errorf("what is mounted later belongs to %q", got)
	}
	if got := u.sh("one", "root", "stat -c '%u:%g %n' /scratch/user /memory/user /host/root; cat /part/user"); got != "1000:2000 /scratch/user\n1000:2000 /memory/user\n7:8 /host/root\nmine\n" {
		u.Errorf("what was written is %q", got)
	}
	uid := u.n.Kubectl("get", "pod", "one", "-o=jsonpath={.metadata.uid}")
	volumes := filepath.Join(u.n.Dir, "data", "pods", uid, "volumes")
	for path, want := range map[string][2]uint32{
		filepath.Join(volumes, "scratch", "root"): {0, 2000}, filepath.Join(volumes, "scratch", "user"): {1000, 2000},
		filepath.Join(volumes, "scratch", "part", "user"): {1000, 2000}, filepath.Join(volumes, "memory", "user"): {1000, 2000}, filepath.Join(u.host, "root"): {7, 8},
	} {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil || st.Uid != want[0] || st.Gid != want[1] {
			u.Errorf("on the host %s belongs to %d:%d, %v; want %d:%d", path, st.Uid, st.Gid, err, want[0], want[1])
		}
	}
}

// testProc: only who asked for all of /proc has it, and who may not ask is refused.
func (u *users) testProc() {
	const masks = "grep -c ' /proc/' /proc/self/mountinfo || true"
	if got := u.sh("one", "user", masks); got != "0\n" {
		u.Errorf("of what is to be open, %s paths are masked", got)
	}
	if got := u.sh("one", "root", masks); got == "0\n" {
		u.Error("nothing is masked for who has not asked")
	}
	_, err := u.n.TryKubectl(strings.Replace(u.manifest("refused"), `"hostUsers": false`, `"hostUsers": true`, 1), "create", "-f", "-")
	if err == nil || !strings.Contains(err.Error(), "spec.containers[1].securityContext.procMount") {
		u.Errorf("all of /proc for the host's users: %v", err)
	}
}

// testBeyond: who asks for users that the pod's namespace does not have, or for files whose owners cannot be translated, is told.
func (u *users) testBeyond() {
	for name, tc := range map[string]struct{ spec, want string }{
		"user":   {`"securityContext": {"runAsUser": 65536},`, "run_as_user: 65536"},
		"group":  {`"securityContext": {"fsGroup": 70000},`, "supplemental_groups: 70000"},
		"system": {`"volumes": [{"name": "v", "hostPath": {"path": "/proc"}}],`, "/proc"},
	} {
		manifest := pod("beyond-"+name, "exec sleep 3600", `"hostUsers": false, `+tc.spec)
		if name == "system" {
			manifest = strings.Replace(manifest, `"name": "c",`, `"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}],`, 1)
		}
		u.n.Apply(manifest)
		harness.Eventually(u, name+": it is told", func() (bool, string) {
			out := u.n.Kubectl("get", "pod", "beyond-"+name, "-o=jsonpath={.status.containerStatuses[0].state.waiting}")
			return strings.Contains(out, "CreateContainerError") && strings.Contains(out, tc.want), out
		})
		u.n.Kubectl("delete", "pod", "beyond-"+name, "--timeout=60s")
	}
}

// testDebugger: who is added to a pod has the pod's users.
func (u *users) testDebugger(first string) {
	u.n.Kubectl("debug", "one", "--image="+busybox, "--container=doctor", "--target=root", "--profile=general", "--", "sh", "-c", "cat /proc/self/uid_map /proc/1/uid_map")
	u.n.Kubectl("wait", "--for=jsonpath={.status.ephemeralContainerStatuses[0].state.terminated.exitCode}=0", "pod/one", "--timeout=60s")
	if got := strings.Fields(u.n.Kubectl("logs", "one", "-c", "doctor")); len(got) != 6 || got[1] != first || got[4] != first {
		u.Errorf("its map, and that of the first process: %q", got)
	}
}

func (u *users) testMessage() {
	u.n.Apply(pod("says", "echo -n the end > /dev/termination-log", `"hostUsers": false, "restartPolicy": "Never", "securityContext": {"runAsUser": 1000},`))
	u.n.Kubectl("wait", "--for=jsonpath={.status.containerStatuses[0].state.terminated.message}=the end", "pod/says", "--timeout=60s")
	u.n.Kubectl("delete", "pod", "says", "--timeout=60s")
}

// testCrash: the node finds what its pods have; a container that it starts afterwards has the same.
func (u *users) testCrash(first string) {
	u.n.Kill()
	u.n.Start()
	u.n.Kubectl("wait", "--for=condition=Ready", "pod/one", "--timeout=60s")
	if got := u.first("one"); got != first {
		u.Errorf("after a crash the IDs begin with %s, before with %s", got, first)
	}
	_, _ = u.n.TryKubectl("", "exec", "one", "-c", "root", "--", "sh", "-c", "kill 1") // it may be killed with the container, before it has ended itself
	u.n.Kubectl("wait", "--for=jsonpath={.status.containerStatuses[0].restartCount}=1", "pod/one", "--timeout=60s")
	u.n.Kubectl("wait", "--for=condition=Ready", "pod/one", "--timeout=60s")
	if got := u.first("one"); got != first {
		u.Errorf("the next container's IDs begin with %s, want %s", got, first)
	}
	if got := u.sh("one", "root", "cat /scratch/user; stat -c '%u:%g' /scratch/user"); got != "mine\n1000:2000\n" {
		u.Errorf("what was written before is %q", got)
	}
}
