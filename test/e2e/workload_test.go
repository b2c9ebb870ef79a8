package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

// workload starts a node whose busybox and nginx come from a registry on loopback.
func workload(t *testing.T) *harness.Node {
	t.Helper()
	return harness.StartNode(t, harness.Options{HostsTOML: harness.PushImages(t, registryHost, map[string]harness.ImageMaker{
		"test/busybox": images.Busybox,
		"test/nginx":   func(name string) (ociarchive.Image, error) { return images.Nginx(name, 80) },
	})})
}

const (
	registryHost = "registry.test"
	busybox      = registryHost + "/test/busybox:1"
)

// pod is a manifest of a pod with one busybox container that runs a shell script.
func pod(name, script, more string) string {
	quoted, _ := json.Marshal(script)
	return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q}, "spec": {%s
		"containers": [{"name": "c", "image": %q, "command": ["sh", "-c", %s]}]}}`, name, more, busybox, quoted)
}

// TestWorkloads runs what people do with pods, on one node.
func TestWorkloads(t *testing.T) {
	n := workload(t)
	t.Run("nginx", func(t *testing.T) { testNginx(t, n) })
	t.Run("restart with back-off", func(t *testing.T) { testBackOff(t, n) })
	t.Run("deletion with grace", func(t *testing.T) { testGrace(t, n) })
	t.Run("exec", func(t *testing.T) { testExec(t, n) })
	t.Run("logs -f", func(t *testing.T) { testFollow(t, n) })
	t.Run("server-side apply", func(t *testing.T) { testServerSideApply(t, n) })
	t.Run("a pod that does not fit", func(t *testing.T) { testUnschedulable(t, n) })
	t.Run("a pod that asks about itself", func(t *testing.T) { testSelf(t, n) })
	t.Run("a pod that has a token", func(t *testing.T) { testIdentity(t, n) })
	t.Run("what is shared and talked to", func(t *testing.T) { testTogether(t, n) })
	t.Run("propagation of mounts", func(t *testing.T) { testPropagation(t, n) })
	t.Run("deployments", func(t *testing.T) { testDeployment(t, n) })
	t.Run("refused by name", func(t *testing.T) { testRefused(t, n) })
}

func testNginx(t *testing.T, n *harness.Node) {
	n.Apply(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [
		{"name": "nginx", "image": "registry.test/test/nginx:1", "ports": [{"containerPort": 80}]}]}}`)
	n.Kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
	ip := n.Kubectl("get", "pod", "web", "-o", "jsonpath={.status.podIP}")
	var body string
	harness.Eventually(t, "nginx answers", func() (bool, string) {
		resp, err := http.Get("http://" + ip + "/")
		if err != nil {
			return false, err.Error()
		}
		defer resp.Body.Close()
		raw, _ := io.ReadAll(resp.Body)
		body = string(raw)
		return resp.StatusCode == http.StatusOK, resp.Status
	})
	if !strings.Contains(body, "nginx") {
		t.Errorf("http://%s/ answered %q", ip, body)
	}
	for _, overWebSocket := range []string{"true", "false"} {
		testPortForward(t, n, "pod/web", "80", overWebSocket)
	}
	n.Kubectl("delete", "pod", "web")
	if _, err := http.Get("http://" + ip + "/"); err == nil {
		t.Errorf("http://%s/ still answers after the pod's deletion", ip)
	}
}

// testPortForward reaches nginx at port 80 of a pod through kubectl, the API server, the agent and the runtime. What is named, and its port, may be a service's.
func testPortForward(t *testing.T, n *harness.Node, target, port, overWebSocket string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute*harness.SlowFactor())
	defer cancel()
	forward := n.KubectlCommand(ctx, "port-forward", target, ":"+port)
	forward.Env = append(forward.Environ(), "KUBECTL_PORT_FORWARD_WEBSOCKETS="+overWebSocket)
	out, err := forward.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := forward.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = forward.Wait() // killed
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var local int
	if _, err := fmt.Sscanf(line, "Forwarding from 127.0.0.1:%d -> 80", &local); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	for range 3 {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", local))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), "nginx") {
			t.Errorf("%s over WebSocket %s: %s, %q, %v", target, overWebSocket, resp.Status, body, err)
		}
		http.DefaultClient.CloseIdleConnections()
	}
}

func testBackOff(t *testing.T, n *harness.Node) {
	n.Apply(pod("fails", "echo once; exit 3", ""))
	var p corev1.Pod
	harness.Eventually(t, "the container waits in back-off after a restart", func() (bool, string) {
		getPod(t, n, "fails", &p)
		if len(p.Status.ContainerStatuses) != 1 {
			return false, "no container status"
		}
		s := p.Status.ContainerStatuses[0]
		return s.RestartCount >= 1 && s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff", fmt.Sprintf("%+v", s.State)
	})
	last := p.Status.ContainerStatuses[0].LastTerminationState.Terminated
	if last == nil || last.ExitCode != 3 || last.Reason != "Error" {
		t.Errorf("last state %+v, want exit code 3, reason Error", last)
	}
	if row := n.Kubectl("get", "pod", "fails"); !strings.Contains(row, "CrashLoopBackOff") {
		t.Errorf("kubectl get: %s", row)
	}
	if events := n.Kubectl("get", "events", "--field-selector", "involvedObject.name=fails"); !strings.Contains(events, "BackOff") {
		t.Errorf("no BackOff event:\n%s", events)
	}
	if log := n.Kubectl("logs", "fails", "--previous"); !strings.Contains(log, "once") {
		t.Errorf("logs --previous: %q", log)
	}
	n.Kubectl("delete", "pod", "fails", "--timeout=60s")
}

func testGrace(t *testing.T, n *harness.Node) {
	n.Apply(pod("polite", `trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 1 & wait; done`, ""))
	n.Apply(pod("stubborn", `trap '' TERM; echo up; while :; do sleep 1; done`, ""))
	for _, name := range []string{"polite", "stubborn"} {
		n.Kubectl("wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s")
		awaitLog(t, n, name, "up")
	}
	follow, cancel := startFollow(t, n, "polite")
	defer cancel()
	// It follows when it has told what is there: the pod may be gone sooner than another kubectl has started.
	if !follow.lines.Scan() || follow.lines.Text() != "up" {
		t.Fatalf("followed: %q, want %q", follow.lines.Text(), "up")
	}
	begin := time.Now()
	n.Kubectl("delete", "pod", "polite", "--grace-period=30", "--timeout=60s")
	if d := time.Since(begin); d > 25*time.Second*harness.SlowFactor() { // of a grace of 30 s
		t.Errorf("a container that ends at SIGTERM took %v", d)
	}
	if lines := follow.rest(); !strings.Contains(lines, "bye") {
		t.Errorf("the container did not see SIGTERM; its log: %q", lines)
	}
	begin = time.Now()
	n.Kubectl("delete", "pod", "stubborn", "--grace-period=2", "--timeout=60s")
	if d := time.Since(begin); d < 1900*time.Millisecond || d > 25*time.Second*harness.SlowFactor() { // the usual grace is 30 s
		t.Errorf("a container that ignores SIGTERM was gone after %v, want the grace of 2 s", d)
	}
}

func testExec(t *testing.T, n *harness.Node) {
	n.Apply(pod("target", "echo up; exec sleep 3600", `"terminationGracePeriodSeconds": 0,`))
	n.Kubectl("wait", "--for=condition=Ready", "pod/target", "--timeout=60s")
	if out := n.Kubectl("exec", "target", "--", "sh", "-c", "echo out; echo err >&2"); out != "out\n" {
		t.Errorf("exec printed %q", out)
	}
	if out, err := n.TryKubectl("a line\n", "exec", "-i", "target", "--", "cat"); err != nil || out != "a line\n" {
		t.Errorf("exec -i cat: %q, %v", out, err)
	}
	_, err := n.TryKubectl("", "exec", "target", "--", "sh", "-c", "exit 9")
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 9 {
		t.Errorf("exec of exit 9: %v", err)
	}
	if _, err := n.TryKubectl("", "exec", "target", "--", "no-such-program"); err == nil || !strings.Contains(err.Error(), "no-such-program") {
		t.Errorf("exec of a program that is not there: %v", err)
	}
	n.Kubectl("delete", "pod", "target", "--timeout=60s")
}

func testFollow(t *testing.T, n *harness.Node) {
	n.Apply(pod("talks", `for i in 1 2 3 4 5; do echo line $i; sleep 0.2; done`, `"restartPolicy": "Never",`))
	harness.Eventually(t, "the container runs", func() (bool, string) {
		var p corev1.Pod
		getPod(t, n, "talks", &p)
		return p.Status.Phase == corev1.PodRunning || p.Status.Phase == corev1.PodSucceeded, string(p.Status.Phase)
	})
	// The command ends by itself when the container has ended, with every line.
	if got, want := n.Kubectl("logs", "-f", "talks"), "line 1\nline 2\nline 3\nline 4\nline 5\n"; got != want {
		t.Errorf("logs -f printed %q, want %q", got, want)
	}
	n.Kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/talks", "--timeout=30s")
	if got := n.Kubectl("logs", "talks", "--tail=2"); got != "line 4\nline 5\n" {
		t.Errorf("logs --tail=2 printed %q", got)
	}
	n.Kubectl("delete", "pod", "talks", "--timeout=60s")
}

func testServerSideApply(t *testing.T, n *harness.Node) {
	apply := func(manager, color string, more ...string) error {
		_, err := n.TryKubectl(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "paint"}, "data": {"color": "`+color+`"}}`,
			append([]string{"apply", "--server-side", "--field-manager", manager, "-f", "-"}, more...)...)
		return err
	}
	if err := apply("one", "red"); err != nil {
		t.Fatal(err)
	}
	if err := apply("one", "green"); err != nil {
		t.Fatal(err)
	}
	if err := apply("two", "blue"); err == nil || !strings.Contains(err.Error(), "conflict") {
		t.Errorf("another manager's change: %v, want a conflict", err)
	}
	if err := apply("two", "blue", "--force-conflicts"); err != nil {
		t.Error(err)
	}
	if got := n.Kubectl("get", "configmap", "paint", "-o", "jsonpath={.data.color}"); got != "blue" {
		t.Errorf("color %q, want blue", got)
	}
	// A pod sees it.
	n.Apply(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "reads"}, "spec": {"restartPolicy": "Never",
		"volumes": [{"name": "v", "configMap": {"name": "paint"}}],
		"containers": [{"name": "c", "image": %q, "command": ["sh", "-c", "echo $COLOR; cat /etc/paint/color"],
			"env": [{"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "paint", "key": "color"}}}],
			"volumeMounts": [{"name": "v", "mountPath": "/etc/paint"}]}]}}`, busybox))
	n.Kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/reads", "--timeout=60s")
	if got := n.Kubectl("logs", "reads"); got != "blue\nblue" {
		t.Errorf("the pod read %q", got)
	}
	n.Kubectl("delete", "pod/reads", "configmap/paint", "--timeout=60s")
}

func testUnschedulable(t *testing.T, n *harness.Node) {
	n.Apply(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "wants"}, "spec": {"containers": [
		{"name": "c", "image": %q, "resources": {"limits": {"example.com/none": 1}}}]}}`, busybox))
	harness.Eventually(t, "PodScheduled says why not", func() (bool, string) {
		var p corev1.Pod
		getPod(t, n, "wants", &p)
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled {
				return c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "example.com/none"), c.Message
			}
		}
		return false, "no condition"
	})
	n.Kubectl("delete", "pod", "wants", "--timeout=60s")
}

func testRefused(t *testing.T, n *harness.Node) {
	for field, spec := range map[string]string{
		"spec.hostNetwork":     `"hostUsers": false, "hostNetwork": true,`,
		"spec.resourceClaims":  `"resourceClaims": [{"name": "a", "resourceClaimName": "b"}],`,
		`RuntimeClass "other"`: `"runtimeClassName": "other",`,
	} {
		_, err := n.TryKubectl(pod("refused", "true", spec), "create", "-f", "-")
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("a pod with %s: %v, want a refusal that names it", field, err)
		}
	}
}

func getPod(t *testing.T, n *harness.Node, name string, p *corev1.Pod) {
	t.Helper()
	*p = corev1.Pod{}
	if err := json.Unmarshal([]byte(n.Kubectl("get", "pod", name, "-o", "json")), p); err != nil {
		t.Fatal(err)
	}
}

func awaitLog(t *testing.T, n *harness.Node, pod, want string) {
	t.Helper()
	f, cancel := startFollow(t, n, pod)
	defer cancel()
	for f.lines.Scan() {
		if strings.Contains(f.lines.Text(), want) {
			return
		}
	}
	t.Fatalf("the log of %s ended without %q", pod, want)
}

// follower is a running `kubectl logs -f`.
type follower struct{ lines *bufio.Scanner }

func startFollow(t *testing.T, n *harness.Node, pod string) (*follower, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second*harness.SlowFactor())
	cmd := n.KubectlCommand(ctx, "logs", "-f", pod)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &follower{lines: bufio.NewScanner(out)}, func() { cancel(); _ = cmd.Wait() }
}

// rest reads to the end of the log.
func (f *follower) rest() string {
	var all strings.Builder
	for f.lines.Scan() {
		all.WriteString(f.lines.Text() + "\n")
	}
	return all.String()
}
