package e2e

import (
	"fmt"
	"strings"
	"testing"

	"monopod.dev/monopod/test/harness"
)

// TestScaling: a deployment whose pods have too much to do grows by what the node measures, and evictions leave as many of its pods as its budget says.
func TestScaling(t *testing.T) {
	n := workload(t)
	n.Apply(fmt.Sprintf(`{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "busy"}, "spec": {
		"selector": {"matchLabels": {"app": "busy"}}, "template": {"metadata": {"labels": {"app": "busy"}}, "spec": {"terminationGracePeriodSeconds": 0,
		"containers": [{"name": "c", "image": %q, "command": ["sh", "-c", "while :; do :; done"], "resources": {"requests": {"cpu": "20m"}, "limits": {"cpu": "40m"}}}]}}}}`, busybox))
	n.Kubectl("rollout", "status", "deployment/busy", "--timeout=60s")
	n.Kubectl("autoscale", "deployment", "busy", "--min=1", "--max=3", "--cpu=50%")
	n.Kubectl("wait", "--for=jsonpath={.spec.replicas}=3", "deployment/busy", "--timeout=180s")
	n.Kubectl("rollout", "status", "deployment/busy", "--timeout=60s")
	n.Kubectl("wait", "--for=jsonpath={.status.desiredReplicas}=3", "hpa/busy", "--timeout=60s")
	if got := n.Kubectl("get", "hpa", "busy", "-o", `jsonpath={range .status.conditions[*]}{.type}={.status} {end}`); !strings.Contains(got, "AbleToScale=True ScalingActive=True") {
		t.Errorf("conditions: %s", got)
	}
	harness.Eventually(t, "events tell why it grew", func() (bool, string) {
		got := n.Kubectl("get", "events", "--field-selector=reason=SuccessfulRescale", "-o", "jsonpath={.items[*].message}")
		return strings.Contains(got, "New size: 3; reason: cpu resource utilization (percentage of request) above target"), got
	})

	n.Kubectl("create", "poddisruptionbudget", "busy", "--selector=app=busy", "--min-available=60%")
	n.Kubectl("wait", "--for=jsonpath={.status.disruptionsAllowed}=1", "pdb/busy", "--timeout=60s")
	n.Kubectl("cordon", n.Name) // what is made in the place of a pod does not run
	pods := strings.Fields(n.Kubectl("get", "pods", "-l", "app=busy", "-o", "jsonpath={.items[*].metadata.name}"))
	evict := func(pod string) (string, error) {
		return n.TryKubectl(fmt.Sprintf(`{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": %q, "namespace": "default"}}`, pod),
			"create", "--raw", "/api/v1/namespaces/default/pods/"+pod+"/eviction", "-f", "-")
	}
	if out, err := evict(pods[0]); err != nil {
		t.Fatalf("the first eviction: %v: %s", err, out)
	}
	n.Kubectl("wait", "--for=delete", "pod/"+pods[0], "--timeout=60s")
	if out, err := evict(pods[1]); err == nil || !strings.Contains(err.Error(), "disruption budget") {
		t.Errorf("the second eviction: %v: %s", err, out)
	}
	n.Kubectl("wait", "--for=jsonpath={.status.currentHealthy}=2", "pdb/busy", "--timeout=60s")
	n.Kubectl("uncordon", n.Name)
	n.Kubectl("wait", "--for=jsonpath={.status.disruptionsAllowed}=1", "pdb/busy", "--timeout=60s")
	n.Kubectl("delete", "hpa,pdb,deployment", "busy")
}
