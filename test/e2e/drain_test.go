package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/test/harness"
)

// TestDrain: `monopod drain` ends all pods in turns, with a kubelet's words; a restart of monopod ends it, and leaves them as they are.
func TestDrain(t *testing.T) {
	n := harness.StartNode(t, harness.Options{})
	n.LoadImage(archive(t))
	dir := t.TempDir()
	socket := filepath.Join(n.Dir, "run", "admin.sock")
	one := func(name, spec, script string) string {
		return lifeOf(name, dir, strings.NewReplacer("SPEC", spec, "NAME", name, "SCRIPT", script).Replace(`
  SPEC
  containers:
  - name: c
    image: IMAGE
    MOUNTS
    env: [{name: ME, value: NAME}]
    command: [sh, -c, "SCRIPT"]
`))
	}
	// It takes its time to end.
	slow := strings.Replace(traps, "trap '", "trap 'sleep 2; ", 1)
	n.Apply(one("web", "terminationGracePeriodSeconds: 60", slow))
	n.Apply(one("critical", "priorityClassName: system-node-critical", traps))
	n.Apply(one("job", "restartPolicy: Never", traps))
	n.Apply(one("deaf", "terminationGracePeriodSeconds: 1", "trap '' TERM; echo deaf-up >> /out/life; while :; do sleep 1; done"))
	n.Apply(one("done", "restartPolicy: Never", "echo done-up >> /out/life"))
	running := []string{"web", "critical", "job", "deaf"}
	for _, name := range running {
		n.Kubectl("wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s")
	}
	n.Kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/done", "--timeout=60s")
	harness.Eventually(t, "all have written", func() (bool, string) {
		lines := written(t, dir)
		return len(lines) == len(running)+1, strings.Join(lines, " ")
	})

	out := n.Monopod("drain", "--admin-socket", socket, "--grace", "5m", "--critical-grace", "1m")
	for _, want := range []string{"4 pods run: default/critical, default/deaf, default/job, default/web", "default/web has ended", "all pods have ended"} {
		if !strings.Contains(out, want) {
			t.Errorf("drain does not say %q: %s", want, out)
		}
	}
	lines := written(t, dir)
	inOrder(t, lines, "web-up", "web-term", "critical-term")
	inOrder(t, lines, "job-up", "job-term", "critical-term")
	for _, name := range running {
		assertDrained(t, n, name)
	}
	var p corev1.Pod
	if getPod(t, n, "done", &p); p.Status.Phase != corev1.PodSucceeded || p.Status.Reason != "" {
		t.Errorf("one that had finished: %+v", p.Status)
	}
	if got := n.Kubectl("get", "node", n.Name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].message}`); got != "node is shutting down" {
		t.Errorf("the node says %q", got)
	}
	n.Apply(one("late", "nodeName: "+n.Name, traps))
	n.Kubectl("wait", "--for=jsonpath={.status.phase}=Failed", "pod/late", "--timeout=60s")
	if getPod(t, n, "late", &p); p.Status.Reason != "NodeShutdown" || !strings.HasSuffix(p.Status.Message, "Pod was rejected as the node is shutting down.") {
		t.Errorf("one that comes late: %+v", p.Status)
	}
	if out := n.Monopod("drain", "--admin-socket", socket); !strings.Contains(out, "the node is drained already") || !strings.Contains(out, "all pods have ended") {
		t.Errorf("a second drain says %s", out)
	}
	if out := n.Monopod("status", "--admin-socket", socket); !strings.Contains(out, "node: it shuts down since") {
		t.Errorf("status says %s", out)
	}
	harness.Eventually(t, "it is told of the node", func() (bool, string) {
		out := n.Kubectl("get", "events", "-A", "--field-selector", "reason=NodeShutdown,involvedObject.kind=Node", "-o", "name")
		return out != "", out
	})

	n.Stop()
	n.Start()
	n.Kubectl("wait", "--for=condition=Ready", "node/"+n.Name, "--timeout=60s")
	n.Apply(one("next", "nodeName: "+n.Name, traps))
	n.Kubectl("wait", "--for=condition=Ready", "pod/next", "--timeout=60s")
	for _, name := range running {
		assertDrained(t, n, name)
	}
	for _, name := range running {
		if again := slices.Index(written(t, dir), name+"-up"); slices.Contains(written(t, dir)[again+1:], name+"-up") {
			t.Errorf("%s was started again: %v", name, written(t, dir))
		}
	}
}

// assertDrained checks what is said of a pod that was ended with the node.
func assertDrained(t *testing.T, n *harness.Node, name string) {
	t.Helper()
	var p corev1.Pod
	getPod(t, n, name, &p)
	disrupted := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonTerminationByKubelet
	})
	if p.Status.Phase != corev1.PodFailed || p.Status.Reason != "Terminated" || !disrupted ||
		p.Status.Message != "Pod was terminated in response to imminent node shutdown." || p.Status.ContainerStatuses[0].State.Terminated == nil {
		t.Errorf("%s: %+v", name, p.Status)
	}
}
