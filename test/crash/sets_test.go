package crash

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

// rolling is a stateful set and a daemon set whose pods write their version when they begin. Their history is short, so that it is shortened, too.
const rolling = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: statefulset}
spec:
  serviceName: none
  replicas: 2
  revisionHistoryLimit: 1
  selector: {matchLabels: {app: statefulset}}
  template:
    metadata: {labels: {app: statefulset}}
    spec:
      terminationGracePeriodSeconds: 30
      volumes: [{name: out, hostPath: {path: DIR}}]
      containers:
      - {name: c, image: IMAGE, volumeMounts: [{name: out, mountPath: /out}], env: [{name: V, value: first}], command: [sh, -c, "SCRIPT"]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: daemonset}
spec:
  revisionHistoryLimit: 1
  selector: {matchLabels: {app: daemonset}}
  template:
    metadata: {labels: {app: daemonset}}
    spec:
      terminationGracePeriodSeconds: 30
      volumes: [{name: out, hostPath: {path: DIR}}]
      containers:
      - {name: c, image: IMAGE, volumeMounts: [{name: out, mountPath: /out}], env: [{name: V, value: first}], command: [sh, -c, "SCRIPT"]}
`

const version = `trap 'exit 0' TERM; echo $V >> /out/life; while :; do sleep 1 & wait $!; done`

// TestDeathAtEachStepOfSets kills monopod at each step of the rollout of a stateful set, and of a daemon set, one after the other (in short tests at some of
// them): each pod was made once by the new template.
func TestDeathAtEachStepOfSets(t *testing.T) {
	n := harness.NewNode(t, harness.Options{})
	image := harness.Archive(t, "localhost/test/busybox:1", images.Busybox)
	dir := t.TempDir()
	n.Start()
	n.LoadImage(image)
	n.Apply(strings.NewReplacer("IMAGE", "localhost/test/busybox:1", "DIR", dir, "SCRIPT", version).Replace(rolling))
	n.Kubectl("rollout", "status", "statefulset/statefulset", "--timeout=120s")
	n.Kubectl("rollout", "status", "daemonset/daemonset", "--timeout=120s")
	n.Stop()
	for kind, pods := range map[string]int{"statefulset": 2, "daemonset": 1} {
		t.Run(kind, func(t *testing.T) {
			for step := 1; ; step += stride() {
				passed := dieInARollout(t, n, kind, step)
				if ran := count(t, dir, fmt.Sprint(kind, step)); ran != pods {
					t.Errorf("step %d: %d pods of the new template were started, want %d", step, ran, pods)
				}
				if passed || t.Failed() {
					t.Logf("%d steps", step-1)
					if step < 6 {
						t.Errorf("only %d steps were found", step-1)
					}
					return
				}
			}
		})
	}
	if err := os.Remove(filepath.Join(dir, "life")); err != nil {
		t.Error(err)
	}
}

// dieInARollout lets monopod end at a step of a rollout, and goes on with another one until it is complete. It says whether the rollout has fewer steps.
func dieInARollout(t *testing.T, n *harness.Node, kind string, step int) (passed bool) {
	t.Helper()
	n.Setenv(failpoint.EnvVar, fmt.Sprintf("controllers/%s/...=kill-at:%d", kind, step))
	n.Start()
	died := n.Died()
	n.Setenv(failpoint.EnvVar, "")
	await := func(what string, done func() bool) {
		for end := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
			select {
			case <-died:
				n.Start()
				died = nil
			default:
			}
			if time.Now().After(end) {
				t.Fatalf("step %d: %s\n%s", step, what, n.Log()[max(0, len(n.Log())-4000):])
			}
		}
	}
	await("the template is not changed", func() bool {
		_, err := n.TryKubectl("", "set", "env", kind+"/"+kind, fmt.Sprintf("V=%s%d", kind, step))
		return err == nil
	})
	await("it does not come to its end", func() bool {
		out, err := n.TryKubectl("", "get", kind, kind, "-o", "json")
		return err == nil && complete(kind, []byte(out))
	})
	passed = died != nil && !strings.Contains(n.Log(), "failpoint controllers/")
	n.Kill()
	return passed
}

// complete says of a set whether all its pods are of its template, and available.
func complete(kind string, data []byte) bool {
	if kind == "daemonset" {
		var set appsv1.DaemonSet
		st := &set.Status
		return json.Unmarshal(data, &set) == nil && st.ObservedGeneration == set.Generation && st.UpdatedNumberScheduled == 1 && st.NumberAvailable == 1
	}
	var set appsv1.StatefulSet
	st := &set.Status
	return json.Unmarshal(data, &set) == nil && st.ObservedGeneration == set.Generation && st.CurrentRevision == st.UpdateRevision && st.AvailableReplicas == 2
}
