package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"monopod.dev/monopod/test/harness"
)

// set is a manifest of a StatefulSet or a DaemonSet whose pods have the label app and tell their version.
func set(kind, name, more string) string {
	return fmt.Sprintf(`{"apiVersion": "apps/v1", "kind": %q, "metadata": {"name": %q}, "spec": {%s "selector": {"matchLabels": {"app": %[2]q}},
		"template": {"metadata": {"labels": {"app": %[2]q}}, "spec": {"terminationGracePeriodSeconds": 30, "containers": [{"name": "c", "image": %[4]q,
			"env": [{"name": "V", "value": "1"}], "command": ["sh", "-c", "trap 'exit 0' TERM; echo version $V; while :; do sleep 1 & wait $!; done"]}]}}}}`,
		kind, name, more, busybox)
}

// TestSets rolls stateful sets and daemon sets with kubectl, as people do.
func TestSets(t *testing.T) {
	n := workload(t)
	n.Apply(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "db"}, "spec": {"clusterIP": "None", "selector": {"app": "db"}}}`)
	n.Apply(set("StatefulSet", "db", `"serviceName": "db", "replicas": 3,`))
	n.Apply(set("DaemonSet", "log", ""))
	t.Run("statefulset", func(t *testing.T) {
		testRollouts(t, n, "statefulset", "db")
		testIdentities(t, n)
	})
	t.Run("daemonset", func(t *testing.T) {
		testRollouts(t, n, "daemonset", "log")
		testCordoned(t, n)
	})
}

// testRollouts rolls a set forth and back, and restarts it.
func testRollouts(t *testing.T, n *harness.Node, kind, name string) {
	of := kind + "/" + name
	rolled := func(want string) {
		t.Helper()
		n.Kubectl("rollout", "status", of, "--timeout=120s")
		for _, pod := range strings.Fields(n.Kubectl("get", "pods", "-l", "app="+name, "--field-selector=status.phase=Running", "-o", "name")) {
			if log := n.Kubectl("logs", pod); log != "version "+want+"\n" {
				t.Errorf("%s says %q, want version %s", pod, log, want)
			}
		}
	}
	rolled("1")
	n.Kubectl("annotate", of, "kubernetes.io/change-cause=the second one")
	n.Kubectl("set", "env", of, "V=2")
	rolled("2")
	history := n.Kubectl("rollout", "history", of)
	if !regexp.MustCompile(`(?m)^1\s+<none>$`).MatchString(history) || !regexp.MustCompile(`(?m)^2\s+the second one$`).MatchString(history) {
		t.Errorf("history:\n%s", history)
	}
	if first := n.Kubectl("rollout", "history", of, "--revision=1"); !strings.Contains(first, "V:\t1") {
		t.Errorf("the first revision:\n%s", first)
	}
	n.Kubectl("rollout", "undo", of)
	rolled("1")
	if out := n.Kubectl("rollout", "undo", of, "--to-revision=3"); !strings.Contains(out, "skipped rollback") {
		t.Errorf("back to where it is: %s", out)
	}
	if history = n.Kubectl("rollout", "history", of); !regexp.MustCompile(`(?m)^3\s+<none>$`).MatchString(history) || regexp.MustCompile(`(?m)^1\s`).MatchString(history) {
		t.Errorf("history:\n%s", history)
	}
	uids := func() string {
		return n.Kubectl("get", "pods", "-l", "app="+name, "-o", "jsonpath={.items[*].metadata.uid}")
	}
	before := strings.Fields(uids())
	n.Kubectl("rollout", "restart", of)
	rolled("1")
	for _, uid := range before {
		if strings.Contains(uids(), uid) {
			t.Errorf("pod %s was not restarted", uid)
		}
	}
}

// testIdentities: pods of a stateful set know their names, and come and go in order.
func testIdentities(t *testing.T, n *harness.Node) {
	for i := range 3 {
		name := fmt.Sprintf("db-%d", i)
		if got := n.Kubectl("exec", name, "--", "hostname"); got != name+"\n" {
			t.Errorf("the host name of %s is %q", name, got)
		}
		if got := n.Kubectl("get", "pods", "-l", "statefulset.kubernetes.io/pod-name="+name, "-o", "name"); got != "pod/"+name+"\n" {
			t.Errorf("by its label %s is %q", name, got)
		}
	}
	n.Kubectl("scale", "statefulset/db", "--replicas=1")
	n.Kubectl("wait", "--for=delete", "pod/db-1", "pod/db-2", "--timeout=60s")
	if got := n.Kubectl("get", "pods", "-l", "app=db", "-o", "name"); got != "pod/db-0\n" {
		t.Errorf("after it was scaled down there are %q", got)
	}
	n.Kubectl("delete", "statefulset", "db", "--cascade=foreground", "--timeout=60s")
	if got := n.Kubectl("get", "pods,controllerrevisions", "-l", "app=db", "-o", "name"); got != "" {
		t.Errorf("left of the set: %q", got)
	}
}

// testCordoned: a cordoned node gets the pod of a daemon set all the same.
func testCordoned(t *testing.T, n *harness.Node) {
	n.Kubectl("cordon", n.Name)
	n.Kubectl("delete", "pod", "-l", "app=log", "--timeout=60s")
	n.Kubectl("rollout", "status", "daemonset/log", "--timeout=60s")
	if got := n.Kubectl("get", "daemonset", "log", "-o", "jsonpath={.status.desiredNumberScheduled} {.status.numberAvailable} {.status.numberMisscheduled}"); got != "1 1 0" {
		t.Errorf("on a cordoned node: %s", got)
	}
	n.Kubectl("uncordon", n.Name)
	n.Kubectl("label", "node", n.Name, "log=no")
	n.Kubectl("patch", "daemonset", "log", "-p", `{"spec":{"template":{"spec":{"nodeSelector":{"log":"yes"}}}}}`)
	n.Kubectl("wait", "--for=delete", "pod", "-l", "app=log", "--timeout=60s")
	n.Kubectl("label", "node", n.Name, "log=yes", "--overwrite")
	n.Kubectl("rollout", "status", "daemonset/log", "--timeout=60s")
}
