package crash

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/test/harness"
)

// roll is a deployment whose pods no node takes: what is tried is who makes and deletes them.
const roll = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: roll}
spec:
  replicas: 3
  selector: {matchLabels: {app: roll}}
  strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 100%}}
  template:
    metadata: {labels: {app: roll}}
    spec:
      nodeSelector: {no: node}
      containers: [{name: c, image: IMAGE}]
`

// TestDeathAtEachStepOfARollout kills monopod at each step of a deployment's start and of its next template, one after the other (in short tests at some
// of them). There are as many pods as the deployment wants then, all of its template.
func TestDeathAtEachStepOfARollout(t *testing.T) {
	n := harness.NewNode(t, harness.Options{})
	for step := 1; ; step += stride() {
		if passed := dieInRollout(t, n, step); passed || t.Failed() {
			if step < 15 {
				t.Errorf("only %d steps were found", step-1)
			}
			return
		}
	}
}

// stride is from one step to the next at which monopod dies: in short tests it is spared most of them.
func stride() int {
	if testing.Short() {
		return 7
	}
	return 1
}

// dieInRollout lets monopod end at a step of the rollout and goes on with another one. It says whether the rollout has fewer steps.
func dieInRollout(t *testing.T, n *harness.Node, step int) (passed bool) {
	t.Helper()
	n.Setenv(failpoint.EnvVar, fmt.Sprintf("controllers/...=kill-at:%d", step))
	n.Start()
	died := n.Died()
	n.Setenv(failpoint.EnvVar, "")
	await := func(what string, done func() (bool, string)) {
		t.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			is, how := done()
			if is {
				return
			}
			select {
			case <-died:
				n.Start()
				died = nil
			default:
			}
			if time.Now().After(end) {
				t.Fatalf("step %d: %s: %s\n%s", step, what, how, n.Log()[max(0, len(n.Log())-4000):])
			}
		}
	}
	kubectl := func(stdin string, args ...string) func() (bool, string) {
		return func() (bool, string) {
			out, err := n.TryKubectl(stdin, args...)
			return err == nil, out
		}
	}
	images := func(want string) func() (bool, string) {
		return func() (bool, string) {
			out, err := n.TryKubectl("", "get", "pods", "-l", "app=roll", "-o", "jsonpath={.items[*].spec.containers[0].image}")
			return err == nil && strings.TrimSpace(out) == want, out
		}
	}
	observed := func() (bool, string) {
		out, err := n.TryKubectl("", "get", "deployment", "roll", "-o", "jsonpath={.metadata.generation} {.status.observedGeneration} {.status.replicas} {.status.updatedReplicas}")
		f := strings.Fields(out)
		return err == nil && len(f) == 4 && f[0] == f[1] && f[2] == "3" && f[3] == "3", out
	}
	for _, image := range []string{"one", "two"} {
		await("the deployment is not written", kubectl(strings.ReplaceAll(roll, "IMAGE", image), "apply", "-f", "-"))
		await("its status is not what it wants", observed)
		await("its pods are not what it wants", images(strings.TrimSpace(strings.Repeat(image+" ", 3))))
	}
	await("it is not deleted", kubectl("", "delete", "deployment", "roll", "--ignore-not-found"))
	await("its pods stay", images(""))
	n.Kill()
	return died != nil && !strings.Contains(n.Log(), "failpoint controllers/")
}
