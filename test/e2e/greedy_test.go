package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/test/harness"
)

// greedy are pods that write three mebibytes, and what is said of them once they have taken more than they may; nothing of those that have not.
var greedy = []struct{ name, script, spec, want string }{
	{"volume", overflow("/d/f"), "volumeMounts: [{name: d, mountPath: /d}]", `Usage of EmptyDir volume "d" exceeds the limit "2Mi". `},
	{"layer", overflow("/f"), "resources: {limits: {ephemeral-storage: 2Mi}}", "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. "},
	{"log", overflow("/proc/1/fd/1"), "resources: {limits: {ephemeral-storage: 2Mi}}", "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. "},
	{"hosts", overflow("/etc/hosts"), "resources: {limits: {ephemeral-storage: 2Mi}}", "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. "},
	{"words", overflow("/dev/termination-log"), "resources: {limits: {ephemeral-storage: 2Mi}}", "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. "},
	{"modest", overflow("/f"), "resources: {limits: {ephemeral-storage: 20Mi}}", ""},
}

func overflow(file string) string { return "seq -w 400000 > " + file + "; exec sleep 3600" }

func applyGreedy(n *harness.Node) {
	for _, g := range greedy {
		n.Apply(strings.NewReplacer("NAME", g.name, "IMAGE", busybox, "SCRIPT", g.script, "SPEC", g.spec).Replace(`
apiVersion: v1
kind: Pod
metadata: {name: greedy-NAME}
spec:
  terminationGracePeriodSeconds: 600
  volumes: [{name: d, emptyDir: {sizeLimit: 2Mi}}]
  containers:
  - name: a
    image: IMAGE
    command: [sh, -c, "SCRIPT"]
    SPEC
`))
	}
}

// testGreedy: who takes more of the disk than it may is evicted, whatever time it has to end; its neighbours are not.
func testGreedy(t *testing.T, n *harness.Node) {
	for _, g := range greedy {
		var p corev1.Pod
		if g.want != "" {
			n.Kubectl("wait", "--for=jsonpath={.status.phase}=Failed", "pod/greedy-"+g.name, "--timeout=120s")
		}
		getPod(t, n, "greedy-"+g.name, &p)
		if g.want == "" {
			if p.Status.Phase != corev1.PodRunning {
				t.Errorf("%s: %+v", g.name, p.Status)
			}
			continue
		}
		if p.Status.Reason != "Evicted" || p.Status.Message != g.want || !disrupted(&p) {
			t.Errorf("%s: %+v", g.name, p.Status)
		}
		harness.Eventually(t, "an event tells of it", func() (bool, string) {
			out := n.Kubectl("get", "events", "--field-selector=reason=Evicted,type=Warning,involvedObject.name=greedy-"+g.name, "-o=jsonpath={.items[*].message}")
			return strings.Contains(out, strings.TrimSpace(g.want)), out
		})
	}
}

func disrupted(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonTerminationByKubelet {
			return true
		}
	}
	return false
}
