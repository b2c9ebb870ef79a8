package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/test/harness"
)

// TestPodLifecycle: what a PodSpec says about running containers, on one node.
func TestPodLifecycle(t *testing.T) {
	n := harness.StartNode(t, harness.Options{})
	n.LoadImage(archive(t))
	applyGreedy(n)
	t.Run("order", func(t *testing.T) { testOrder(t, n) })
	t.Run("probes", func(t *testing.T) { testProbes(t, n) })
	t.Run("hooks that fail", func(t *testing.T) { testFailingHooks(t, n) })
	t.Run("restart rules", func(t *testing.T) { testRestartRules(t, n) })
	t.Run("changed image", func(t *testing.T) { testChangedImage(t, n) })
	t.Run("debug", func(t *testing.T) { testDebug(t, n) })
	t.Run("limits of the disk", func(t *testing.T) { testGreedy(t, n) })
}

// lifeOf is the manifest of a pod whose containers write what happens to them, a line each, to a file of the host.
func lifeOf(name, dir, spec string) string {
	return strings.NewReplacer("NAME", name, "IMAGE", busybox, "DIR", dir).Replace(`
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  volumes: [{name: out, hostPath: {path: DIR}}]
`) + strings.NewReplacer("IMAGE", busybox, "MOUNTS", `volumeMounts: [{name: out, mountPath: /out}]`).Replace(spec)
}

func written(t *testing.T, dir string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "life"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Fields(string(data))
}

func position(t *testing.T, lines []string, word string) int {
	t.Helper()
	at := slices.Index(lines, word)
	if at < 0 {
		t.Errorf("nothing says %s: %v", word, lines)
	} else if slices.Contains(lines[at+1:], word) {
		t.Errorf("%s is said twice: %v", word, lines)
	}
	return at
}

// inOrder says that words were written once each, one after the other.
func inOrder(t *testing.T, lines []string, words ...string) {
	t.Helper()
	last := -1
	for _, w := range words {
		at := position(t, lines, w)
		if at >= 0 && at < last {
			t.Errorf("%s comes too early: %v", w, lines)
		}
		last = max(last, at)
	}
}

const traps = `trap 'echo ${ME}-term >> /out/life; exit 0' TERM; echo ${ME}-up >> /out/life; while :; do sleep 1 & wait $!; done`

func testOrder(t *testing.T, n *harness.Node) {
	dir := t.TempDir()
	n.Apply(lifeOf("order", dir, strings.ReplaceAll(`
  terminationGracePeriodSeconds: 60
  initContainers:
  - {name: i1, image: IMAGE, MOUNTS, command: [sh, -c, echo i1 >> /out/life]}
  - name: s1
    image: IMAGE
    MOUNTS
    restartPolicy: Always
    env: [{name: ME, value: s1}]
    command: [sh, -c, "TRAPS"]
    startupProbe: {exec: {command: [sh, -c, grep -q s1-up /out/life && echo s1-probed >> /out/life]}, periodSeconds: 1}
  - name: s2
    image: IMAGE
    MOUNTS
    restartPolicy: Always
    env: [{name: ME, value: s2}]
    command: [sh, -c, "TRAPS"]
  - {name: i2, image: IMAGE, MOUNTS, command: [sh, -c, echo i2 >> /out/life]}
  containers:
  - name: a
    image: IMAGE
    MOUNTS
    env: [{name: ME, value: a}]
    command: [sh, -c, "TRAPS"]
    lifecycle:
      postStart: {exec: {command: [sh, -c, echo a-post >> /out/life]}}
      preStop: {exec: {command: [sh, -c, echo a-pre >> /out/life]}}
  - name: b
    image: IMAGE
    MOUNTS
    env: [{name: ME, value: b}]
    command: [sh, -c, "TRAPS"]
`, "TRAPS", traps)))
	n.Kubectl("wait", "--for=condition=Ready", "pod/order", "--timeout=60s")
	harness.Eventually(t, "all have written", func() (bool, string) {
		lines := written(t, dir)
		return slices.Contains(lines, "b-up"), strings.Join(lines, " ")
	})
	lines := written(t, dir)
	inOrder(t, lines, "i1", "s1-up", "s1-probed", "i2", "a-post", "b-up")
	inOrder(t, lines, "s1-probed", "s2-up")
	inOrder(t, lines, "i2", "a-up")
	var p corev1.Pod
	getPod(t, n, "order", &p)
	for _, c := range p.Status.InitContainerStatuses {
		if sidecar := c.Name[0] == 's'; !c.Ready || sidecar != (c.Started != nil && *c.Started) || sidecar != (c.State.Running != nil) {
			t.Errorf("init container %s: %+v", c.Name, c)
		}
	}
	n.Kubectl("delete", "pod", "order", "--timeout=120s")
	lines = written(t, dir)
	inOrder(t, lines, "a-pre", "a-term", "s2-term", "s1-term")
	inOrder(t, lines, "b-term", "s2-term")
}

func testProbes(t *testing.T, n *harness.Node) {
	dir := t.TempDir()
	n.Apply(lifeOf("probed", dir, `
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: IMAGE
    MOUNTS
    command: [sh, -c, "mkdir /www; echo fine > /www/index.html; echo up >> /out/life; exec httpd -f -p 8080 -h /www"]
    ports: [{name: http, containerPort: 8080}]
    startupProbe: {httpGet: {path: /index.html, port: http}, periodSeconds: 1, failureThreshold: 60}
    readinessProbe: {exec: {command: [test, -e, /out/ready]}, periodSeconds: 1}
    livenessProbe: {tcpSocket: {port: http}, periodSeconds: 1}
  - name: weak
    image: IMAGE
    MOUNTS
    command: [sh, -c, exec sleep 3600]
    livenessProbe: {exec: {command: [sh, -c, test ! -e /out/sick]}, periodSeconds: 1, failureThreshold: 2, terminationGracePeriodSeconds: 1}
`))
	n.Kubectl("wait", "--for=jsonpath={.status.containerStatuses[?(@.name=='web')].started}=true", "pod/probed", "--timeout=60s")
	var p corev1.Pod
	getPod(t, n, "probed", &p)
	if p.Status.ContainerStatuses[1].Ready && p.Status.ContainerStatuses[0].Ready || p.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod is %s, ready before its probe says so: %+v", p.Status.Phase, p.Status.ContainerStatuses)
	}
	ready := filepath.Join(dir, "ready")
	if err := os.WriteFile(ready, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	n.Kubectl("wait", "--for=condition=Ready", "pod/probed", "--timeout=60s")
	if err := os.Remove(ready); err != nil {
		t.Fatal(err)
	}
	n.Kubectl("wait", "--for=condition=Ready=false", "pod/probed", "--timeout=60s")
	if err := os.WriteFile(filepath.Join(dir, "sick"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	n.Kubectl("wait", "--for=jsonpath={.status.containerStatuses[?(@.name=='weak')].restartCount}=1", "pod/probed", "--timeout=60s")
	awaitEvents(t, n, "probed", "Liveness probe failed", "Container weak failed liveness probe, will be restarted", "Readiness probe failed")
	getPod(t, n, "probed", &p)
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == "web" && c.RestartCount != 0 {
			t.Errorf("the healthy container was restarted %d times", c.RestartCount)
		}
	}
	n.Kubectl("delete", "pod", "probed", "--timeout=120s")
}

func testFailingHooks(t *testing.T, n *harness.Node) {
	dir := t.TempDir()
	n.Apply(lifeOf("hooked", dir, `
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: IMAGE
    MOUNTS
    command: [sh, -c, exec sleep 3600]
    lifecycle:
      postStart: {exec: {command: [sh, -c, echo tried >> /out/life; exit 3]}}
`))
	n.Kubectl("wait", "--for=jsonpath={.status.phase}=Failed", "pod/hooked", "--timeout=60s")
	awaitEvents(t, n, "hooked", "FailedPostStartHook")
	if lines := written(t, dir); len(lines) != 1 {
		t.Errorf("the hook ran %d times: %v", len(lines), lines)
	}
	n.Kubectl("delete", "pod", "hooked", "--timeout=120s")

	// A hook that does not end is cut with the pod's time.
	n.Apply(lifeOf("stubborn", dir, `
  terminationGracePeriodSeconds: 2
  containers:
  - name: c
    image: IMAGE
    MOUNTS
    command: [sh, -c, exec sleep 3600]
    lifecycle:
      preStop: {sleep: {seconds: 2}}
  - name: d
    image: IMAGE
    MOUNTS
    command: [sh, -c, exec sleep 3600]
    lifecycle:
      preStop: {exec: {command: [sh, -c, echo cut >> /out/life; exec sleep 3600]}}
`))
	n.Kubectl("wait", "--for=condition=Ready", "pod/stubborn", "--timeout=60s")
	n.Kubectl("delete", "pod", "stubborn", "--timeout=60s")
	position(t, written(t, dir), "cut")
}

func testRestartRules(t *testing.T, n *harness.Node) {
	dir := t.TempDir()
	n.Apply(lifeOf("rules", dir, `
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  initContainers:
  - {name: i, image: IMAGE, MOUNTS, command: [sh, -c, echo i >> /out/life]}
  containers:
  - name: a
    image: IMAGE
    MOUNTS
    command: [sh, -c, "echo a >> /out/life; until grep -q b /out/life; do usleep 10000; done; if mkdir /out/once; then exit 42; fi; exit 0"]
    restartPolicy: Never
    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]
  - name: b
    image: IMAGE
    MOUNTS
    command: [sh, -c, "echo b >> /out/life; if test -e /out/once; then exit 0; fi; exec sleep 3600"]
`))
	n.Kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/rules", "--timeout=60s")
	var p corev1.Pod
	getPod(t, n, "rules", &p)
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if c.RestartCount != 1 {
			t.Errorf("%s was restarted %d times", c.Name, c.RestartCount)
		}
	}
	lines := written(t, dir)
	if count := len(slices.DeleteFunc(slices.Clone(lines), func(s string) bool { return s != "i" })); count != 2 {
		t.Errorf("the init container ran %d times: %v", count, lines)
	}
	n.Kubectl("delete", "pod", "rules", "--timeout=120s")
}

func testChangedImage(t *testing.T, n *harness.Node) {
	dir := t.TempDir()
	n.Apply(lifeOf("edited", dir, `
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: IMAGE, MOUNTS, command: [sh, -c, exec sleep 3600]}
`))
	n.Kubectl("wait", "--for=condition=Ready", "pod/edited", "--timeout=60s")
	var p corev1.Pod
	getPod(t, n, "edited", &p)
	digest := p.Status.ContainerStatuses[0].ImageID
	n.Kubectl("set", "image", "pod/edited", "c="+digest)
	n.Kubectl("wait", "--for=jsonpath={.status.containerStatuses[0].restartCount}=1", "pod/edited", "--timeout=60s")
	n.Kubectl("wait", "--for=condition=Ready", "pod/edited", "--timeout=60s")
	n.Kubectl("delete", "pod", "edited", "--timeout=120s")
}

func testDebug(t *testing.T, n *harness.Node) {
	dir := t.TempDir()
	n.Apply(lifeOf("patient", dir, `
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: IMAGE, MOUNTS, command: [sh, -c, exec sleep 12345]}
`))
	n.Kubectl("wait", "--for=condition=Ready", "pod/patient", "--timeout=60s")
	n.Kubectl("debug", "patient", "--image="+busybox, "--container=doctor", "--target=c", "--profile=general", "--", "sh", "-c", "ps; echo seen")
	harness.Eventually(t, "the debugger has looked", func() (bool, string) {
		log, err := n.TryKubectl("", "logs", "patient", "-c", "doctor")
		return err == nil && strings.Contains(log, "seen"), log
	})
	if log := n.Kubectl("logs", "patient", "-c", "doctor"); !strings.Contains(log, "sleep 12345") {
		t.Errorf("the debugger does not see its target:\n%s", log)
	}
	n.Kubectl("wait", "--for=jsonpath={.status.ephemeralContainerStatuses[0].state.terminated.exitCode}=0", "pod/patient", "--timeout=60s")
	var p corev1.Pod
	getPod(t, n, "patient", &p)
	if c := p.Status.ContainerStatuses[0]; c.RestartCount != 0 || !c.Ready {
		t.Errorf("the patient: %+v", c)
	}
	n.Kubectl("debug", "patient", "--copy-to=copy", "--image="+busybox, "--container=doctor", "--", "sh", "-c", "echo copied; exec sleep 3600")
	n.Kubectl("wait", "--for=condition=Ready", "pod/copy", "--timeout=60s")
	n.Kubectl("delete", "pod", "patient", "copy", "--timeout=120s")
}
