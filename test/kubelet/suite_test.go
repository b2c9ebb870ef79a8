//go:build kubelet

package kubelet

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/test/harness"
)

// rotation makes logs small enough to be rotated in a test.
var rotation = map[string]any{"containerLogMaxSize": "20Ki", "containerLogMaxFiles": 4, "containerLogMonitorInterval": "3s"}

func with(more map[string]any) map[string]any {
	all := map[string]any{}
	for _, m := range []map[string]any{rotation, more} {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}

// evented turns on what a kubelet can have from a CRI runtime instead of asking for lists and reading cgroups.
var evented = map[string]any{"featureGates": map[string]bool{"EventedPLEG": true, "PodAndContainerStatsFromCRI": true}}

func TestDefaults(t *testing.T) { suite(t, with(nil), false) }

func TestEvented(t *testing.T) { suite(t, with(evented), true) }

func suite(t *testing.T, cfg map[string]any, fromCRI bool) {
	n := start(t, cfg)
	defer func() { t.Logf("what the kubelet complained of:\n%s", n.complaints()) }()
	if err := os.Mkdir(n.dir+"/host/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, spec := range shapes {
		n.write(name, spec)
	}
	in := func(f func(n *node)) func(t *testing.T) {
		return func(t *testing.T) {
			outer := n.TB
			n.TB = t
			defer func() { n.TB = outer }()
			f(n)
		}
	}
	t.Run("start", in(started))
	t.Run("volumes", in(volumes))
	t.Run("cgroups", in(cgroups))
	t.Run("probes", in(probes))
	t.Run("restarts", in(restarts))
	t.Run("namespaces", in(namespaces))
	t.Run("network", in(network))
	t.Run("streams", in(streams))
	t.Run("logs", in(logs))
	t.Run("refused", in(refusals))
	t.Run("stats", in(func(n *node) { figures(n, fromCRI) }))
	t.Run("rotation", in(rotated))
	t.Run("deaths", in(deaths))
	t.Run("removal", in(removal))
}

// await waits until a pod is as f wants it.
func (n *node) await(name, what string, f func(p *corev1.Pod) bool) *corev1.Pod {
	n.Helper()
	var pod *corev1.Pod
	harness.Eventually(n, name+": "+what, func() (bool, string) {
		pods, err := n.api.pods()
		if err != nil {
			return false, err.Error()
		}
		if pod = pods[name]; pod == nil {
			return false, "no such pod"
		}
		return f(pod), show(pod)
	})
	return pod
}

func show(p *corev1.Pod) string {
	s := fmt.Sprintf("phase %s, %s %s, ip %s", p.Status.Phase, p.Status.Reason, p.Status.Message, p.Status.PodIP)
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		s += fmt.Sprintf("\n  %s: ready %v, restarts %d, %v, before: %v", c.Name, c.Ready, c.RestartCount, c.State.String(), c.LastTerminationState.String())
	}
	return s
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func container(p *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if c.Name == name {
			return &c
		}
	}
	return &corev1.ContainerStatus{}
}

// started: pods run, their init containers before, sidecars beside; an image has the name that its pod gives it.
func started(n *node) {
	full := n.await("full", "ready", ready)
	for _, name := range []string{"first", "second"} {
		if t := container(full, name).State.Terminated; t == nil || t.ExitCode != 0 {
			n.Errorf("init container %s: %s", name, show(full))
		}
	}
	main := container(full, "main")
	if main.Image != registryHost+"/busybox:1" || !strings.Contains(main.ImageID, "@sha256:") || !strings.HasPrefix(main.ContainerID, "monopod://") {
		n.Errorf("image %q, image id %q, container %q", main.Image, main.ImageID, main.ContainerID)
	}
	for _, name := range []string{"guaranteed", "hostnet", "userns", "shared", "talk", "tty"} {
		n.await(name, "ready", ready)
	}
	n.await("once", "succeeded", func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded && container(p, "later").RestartCount == 1
	})
	n.await("fallback", "failed with the end of its log", func(p *corev1.Pod) bool {
		t := container(p, "c").State.Terminated
		return p.Status.Phase == corev1.PodFailed && t != nil && t.ExitCode == 4 && t.Message == "the last words\n"
	})
	n.await("oom", "killed for want of memory", func(p *corev1.Pod) bool {
		t := container(p, "c").State.Terminated
		return t != nil && t.Reason == "OOMKilled" && t.ExitCode == 137
	})
}

func volumes(n *node) {
	for _, c := range []struct{ command, want string }{
		{"cat /e/second", "first\nside\n"},
		{"cat /e/started", "started\n"},
		{"cat /d/labels", `app="full"`},
		{"cat /d/cpu", "100"},
		{"echo $MEM", "33554432\n"},
		{"df -k /mem | tail -1 | awk '{print $2}'", "4096\n"},
		{"echo x > /sub/x; cat /h/sub/x", "x\n"},
		{"echo x 2>&1 > /ro/x | grep -o Read-only", "Read-only\n"},
		{"cat /etc/hostname; hostname", "full-node\nfull-node\n"},
		{"grep -c $IP.*full-node /etc/hosts", "1\n"},
		{"ls /run/secrets 2>&1 | wc -l", "1\n"}, // a static pod has no service account
	} {
		if got := n.sh("full", "main", c.command); got != c.want {
			n.Errorf("%s: %q, want %q", c.command, got, c.want)
		}
	}
	// What is mounted on the host later is seen where the mount propagates.
	at := n.dir + "/host/sub"
	if err := syscall.Mount("late", at, "tmpfs", 0, ""); err != nil {
		n.Fatal(err)
	}
	defer syscall.Unmount(at, 0)
	if err := os.WriteFile(at+"/late", nil, 0o644); err != nil {
		n.Fatal(err)
	}
	if got := n.sh("full", "main", "ls /propagated/sub; ls /h/sub"); got != "late\nx\n" {
		n.Errorf("a later mount, through a propagated and a private volume: %q", got)
	}
}

// cgroups: containers are in the kubelet's cgroups for their quality of service, with their limits.
func cgroups(n *node) {
	for pod, class := range map[string]string{"full": "burstable/", "guaranteed": "", "hostnet": "besteffort/"} {
		p := n.await(pod, "runs", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
		for _, h := range hierarchies(n) {
			if strings.HasSuffix(h, "/systemd") {
				continue
			}
			for _, c := range p.Status.ContainerStatuses {
				dir := filepath.Join(h, n.cgroupRoot, "kubepods", class, "pod"+string(p.UID), strings.TrimPrefix(c.ContainerID, "monopod://"))
				if procs, err := os.ReadFile(dir + "/cgroup.procs"); err != nil || len(procs) == 0 {
					n.Errorf("%s of %s is not in %s: %v", c.Name, pod, dir, err)
				}
			}
		}
	}
	if got := strings.TrimSpace(n.sh("full", "main", "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; true")); got != "33554432" {
		n.Errorf("memory limit in the container: %q", got)
	}
	p := n.await("full", "runs", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	if r := container(p, "main").Resources; r == nil || r.Limits.Memory().Value() != 32<<20 || r.Limits.Cpu().MilliValue() != 100 || r.Requests.Cpu().MilliValue() != 50 {
		n.Errorf("resources in the status: %v", r)
	}
}

func probes(n *node) {
	n.await("live", "is restarted by its liveness probe", func(p *corev1.Pod) bool {
		c := container(p, "c")
		return c.RestartCount == 1 && c.LastTerminationState.Terminated != nil && c.State.Running != nil
	})
	for _, name := range []string{"hang", "notready"} {
		p := n.await(name, "runs", func(p *corev1.Pod) bool { return container(p, "c").State.Running != nil })
		if ready(p) || container(p, "c").RestartCount != 0 {
			n.Errorf("a failing readiness probe: %s", show(p))
		}
	}
	// ExecSync's time-out has ended the probe's command: at most the present one runs.
	if got := strings.TrimSpace(n.sh("hang", "c", "ps | grep -c '[s]leep 60'")); got != "0" && got != "1" {
		n.Errorf("commands of timed out probes that still run: %s", got)
	}
}

func restarts(n *node) {
	p := n.await("crash", "waits before the next attempt", func(p *corev1.Pod) bool {
		c := container(p, "c")
		return c.RestartCount >= 2 && c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff"
	})
	if t := container(p, "c").LastTerminationState.Terminated; t == nil || t.ExitCode != 3 || t.Message != "why\n" || t.Reason != "Error" {
		n.Errorf("the end before: %v", t)
	}
}

func namespaces(n *node) {
	if got := strings.Fields(n.sh("userns", "c", "cat /proc/self/uid_map")); len(got) != 3 || got[0] != "0" || got[1] == "0" || got[2] != "65536" {
		n.Errorf("uid map: %v", got)
	}
	if got := n.sh("userns", "c", "stat -c %u:%g /e/x"); got != "0:0\n" {
		n.Errorf("owner in the user namespace: %s", got)
	}
	if got := n.sh("shared", "a", "ps | grep -c '[s]leep 10000[12]'"); got != "2\n" {
		n.Errorf("processes seen in the shared namespace: %s", got)
	}
	if got := n.sh("full", "main", "ps | grep -c '[h]ttpd'; true"); got != "0\n" {
		n.Errorf("processes of another container are seen: %s", got)
	}
	if got := strings.TrimSpace(n.sh("full", "web", "grep -E '^(Seccomp|NoNewPrivs|CapEff):' /proc/self/status | awk '{print $2}' | xargs")); got != "1 0000000000000400 2" && got != "0000000000000400 1 2" {
		n.Errorf("security of full/web: %q", got)
	}
}

func network(n *node) {
	p := n.await("full", "has an address", func(p *corev1.Pod) bool { return p.Status.PodIP != "" })
	for _, url := range []string{"http://" + p.Status.PodIP + "/", "http://127.0.0.1:18080/", "http://" + nodeIP + ":18080/", fmt.Sprintf("http://127.0.0.1:%d/", n.forward("full", 80))} {
		if got := fetch(n, url); got != "hello\n" {
			n.Errorf("%s: %q", url, got)
		}
	}
	if got := fetch(n, "http://127.0.0.1:18081/"); got != "host\n" {
		n.Errorf("the host's network: %q", got)
	}
	if got := n.sh("shared", "a", "wget -qO- http://"+p.Status.PodIP+"/"); got != "hello\n" {
		n.Errorf("from pod to pod: %q", got)
	}
	if got := n.sh("full", "main", "wget -qO- http://127.0.0.1/"); got != "hello\n" {
		n.Errorf("between the containers of a pod: %q", got)
	}
}

func fetch(n *node, url string) string {
	n.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		n.Error(err)
		return ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		n.Error(err)
	}
	return string(body)
}

// refusals: what cannot be had is said in the pod's status.
func refusals(n *node) {
	n.await("refused", "is refused by name", func(p *corev1.Pod) bool {
		w := container(p, "c").State.Waiting
		return w != nil && strings.Contains(w.Message, "host_path") && strings.Contains(w.Message, "/no/such/directory")
	})
	n.await("noimage", "has no image", func(p *corev1.Pod) bool {
		w := container(p, "c").State.Waiting
		return w != nil && (w.Reason == "ErrImagePull" || w.Reason == "ImagePullBackOff") && strings.Contains(w.Message, "test.example/missing:1")
	})
}

// rotated: the kubelet rotates, the runtime reopens, and no line is lost or cut.
func rotated(n *node) {
	p := n.await("log", "has written all", func(p *corev1.Pod) bool { return container(p, "c").State.Terminated != nil })
	files, err := filepath.Glob(filepath.Join(n.dir, "logs", "*_"+string(p.UID), "c", "0.log*"))
	if err != nil || len(files) < 2 || len(files) > 4 {
		n.Fatalf("files of the log: %v %v, want 2 to 4", files, err)
	}
	slices.Sort(files)
	files = append(files[1:], files[0]) // the oldest first, the present one last
	next, compressed := 0, 0
	for _, f := range files {
		for line := range strings.Lines(read(n, f)) {
			fields := strings.Fields(line)
			if fields[3] == "last" {
				continue
			}
			var i int
			if _, err := fmt.Sscan(fields[4], &i); err != nil || fields[2] != "F" || next != 0 && i != next {
				n.Fatalf("%s: %q, want line %d", f, line, next)
			}
			next = i + 1
		}
		if strings.HasSuffix(f, ".gz") {
			compressed++
		}
	}
	if next != 6001 || compressed == 0 {
		n.Errorf("the files end with line %d, %d of them are compressed: %v", next-1, compressed, files)
	}
}

func read(n *node, path string) string {
	n.Helper()
	f, err := os.Open(path)
	if err != nil {
		n.Fatal(err)
	}
	defer f.Close()
	r := io.Reader(f)
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			n.Fatal(err)
		}
	}
	raw, err := io.ReadAll(r)
	if err != nil {
		n.Fatal(err)
	}
	return string(raw)
}
