package e2e

import (
	"fmt"
	"strings"
	"testing"

	"monopod.dev/monopod/test/harness"
)

// testDeployment does with a deployment what tutorials do.
func testDeployment(t *testing.T, n *harness.Node) {
	expect := func(what, got, want string) {
		t.Helper()
		if strings.TrimSpace(got) != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	n.Kubectl("create", "deployment", "shop", "--image=registry.test/test/nginx:1", "--replicas=3", "--port=80")
	n.Kubectl("rollout", "status", "deployment/shop", "--timeout=60s")
	n.Kubectl("wait", "--for=condition=Available", "deployment/shop", "--timeout=60s")
	expect("ready pods", n.Kubectl("get", "deployment", "shop", "-o", "jsonpath={.status.readyReplicas}"), "3")
	if all := n.Kubectl("get", "all", "-l", "app=shop"); !strings.Contains(all, "deployment.apps/shop   3/3") || !strings.Contains(all, "replicaset.apps/shop-") {
		t.Errorf("kubectl get all:\n%s", all)
	}

	n.Kubectl("expose", "deployment", "shop", "--port=8080", "--target-port=80")
	harness.Eventually(t, "the service has three endpoints", func() (bool, string) {
		got := n.Kubectl("get", "endpointslices", "-l", "kubernetes.io/service-name=shop", "-o", "jsonpath={.items[*].endpoints[*].addresses[0]}")
		return len(strings.Fields(got)) == 3, got
	})
	n.Kubectl("exec", "deploy/shop", "--", "true")
	n.Kubectl("logs", "deploy/shop")

	n.Kubectl("set", "env", "deployment/shop", "SEASON=winter")
	n.Kubectl("rollout", "status", "deployment/shop", "--timeout=60s")
	seasons := func() string {
		const each = `{{range .items}}{{if not .metadata.deletionTimestamp}}{{with (index .spec.containers 0).env}}{{(index . 0).value}}{{end}},{{end}}{{end}}`
		return n.Kubectl("get", "pods", "-l", "app=shop", "-o", "go-template="+each)
	}
	expect("after a change", seasons(), "winter,winter,winter,")
	if history := n.Kubectl("rollout", "history", "deployment/shop"); !strings.Contains(history, "\n1 ") || !strings.Contains(history, "\n2 ") {
		t.Errorf("kubectl rollout history:\n%s", history)
	}
	n.Kubectl("rollout", "undo", "deployment/shop")
	n.Kubectl("rollout", "status", "deployment/shop", "--timeout=60s")
	expect("after going back", seasons(), ",,,")
	n.Kubectl("rollout", "restart", "deployment/shop")
	n.Kubectl("rollout", "status", "deployment/shop", "--timeout=60s")
	n.Kubectl("scale", "deployment/shop", "--replicas=1")
	n.Kubectl("wait", "--for=jsonpath={.status.replicas}=1", "deployment/shop", "--timeout=60s")

	// A pod that somebody deletes is replaced, also while nobody is there to see it go.
	n.Kubectl("scale", "deployment/shop", "--replicas=2")
	n.Kubectl("rollout", "status", "deployment/shop", "--timeout=60s")
	n.Kubectl("delete", "pods", "-l", "app=shop", "--wait=false")
	n.Kill()
	n.Start()
	harness.Eventually(t, "two other pods run", func() (bool, string) {
		got := n.Kubectl("get", "pods", "-l", "app=shop", "-o", `jsonpath={range .items[*]}{.metadata.deletionTimestamp}{.status.phase},{end}`)
		return got == "Running,Running,", got
	})
	n.Kubectl("delete", "deployment,service", "shop")
	harness.Eventually(t, "the pods go with their deployment", func() (bool, string) {
		got := n.Kubectl("get", "pods,replicasets", "-l", "app=shop", "-o", "name")
		return got == "", fmt.Sprintf("%q", got)
	})
}
