package crash

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/host/tree"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

// life is a pod with a container of each role and hooks; each writes when it begins. Its time to end is longer than a busy machine takes to start a node again:
// when it is over hooks do not run.
const life = `
apiVersion: v1
kind: Pod
metadata: {name: life}
spec:
  terminationGracePeriodSeconds: 600
  restartPolicy: Never
  volumes: [{name: out, hostPath: {path: DIR}}, {name: v, emptyDir: {}}]
  initContainers:
  - {name: i, image: IMAGE, volumeMounts: [{name: out, mountPath: /out}], command: [sh, -c, echo i >> /out/life]}
  - {name: s, image: IMAGE, volumeMounts: [{name: out, mountPath: /out}], restartPolicy: Always, command: [sh, -c, "LOOP"], env: [{name: ME, value: s}]}
  containers:
  - name: a
    image: IMAGE
    volumeMounts: [{name: out, mountPath: /out}]
    command: [sh, -c, "LOOP"]
    env: [{name: ME, value: a}]
    lifecycle:
      postStart: {exec: {command: [sh, -c, echo a-post >> /out/life]}}
      preStop: {exec: {command: [sh, -c, echo a-pre >> /out/life]}}
`

const loop = `trap 'exit 0' TERM; echo $ME >> /out/life; while :; do sleep 1 & wait $!; done`

// TestDeathAtEachStepOfAPod kills monopod at each step of a pod's start and of its end, one after the other. The pod ends up as its specification says:
// each container was started once, as the API shows, hooks ran, and nothing is left of a pod that was deleted. docs/LIFECYCLE.md says what may run twice.
func TestDeathAtEachStepOfAPod(t *testing.T) {
	n := harness.NewNode(t, harness.Options{})
	image := harness.Archive(t, "localhost/test/busybox:1", images.Busybox)
	n.Start()
	n.LoadImage(image)
	n.Stop()
	for step := 1; ; step++ {
		if passed := dieAt(t, n, step); passed || t.Failed() {
			if step < 15 {
				t.Errorf("only %d steps were found", step-1)
			}
			return
		}
	}
}

// dieAt lets monopod end at a step of the pod's life and goes on with another one. It says whether the life has fewer steps.
func dieAt(t *testing.T, n *harness.Node, step int) (passed bool) {
	t.Helper()
	dir := t.TempDir()
	n.Setenv(failpoint.EnvVar, fmt.Sprintf("agent/...=kill-at:%d", step))
	n.Start()
	died := n.Died()
	n.Setenv(failpoint.EnvVar, "")
	restart := func() {
		select {
		case <-died:
			n.Start()
			died = nil
		default:
		}
	}
	manifest := strings.NewReplacer("IMAGE", "localhost/test/busybox:1", "DIR", dir, "LOOP", loop).Replace(life)
	await := func(what string, done func() bool) {
		for end := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
			restart()
			if time.Now().After(end) {
				t.Fatalf("step %d: %s; the pod:\n%s\n%s", step, what, describe(n), n.Log()[max(0, len(n.Log())-4000):])
			}
		}
	}
	await("the pod was not created", func() bool {
		_, err := n.TryKubectl(manifest, "apply", "-f", "-")
		return err == nil
	})
	var p corev1.Pod
	await("it does not get ready", func() bool {
		out, err := n.TryKubectl("", "get", "pod", "life", "-o", "json")
		return err == nil && json.Unmarshal([]byte(out), &p) == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
	})
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if ran := count(t, dir, c.Name); ran != int(c.RestartCount)+1 || c.RestartCount != 0 {
			t.Errorf("step %d: container %s was started %d times, and the API says %d restarts: %v", step, c.Name, ran, c.RestartCount, lines(t, dir))
		}
	}
	if ran := count(t, dir, "a-post"); ran < 1 || ran > 2 {
		t.Errorf("step %d: the postStart hook ran %d times", step, ran)
	}
	await("it was not deleted", func() bool {
		_, err := n.TryKubectl("", "delete", "pod", "life", "--ignore-not-found", "--timeout=5s")
		return err == nil
	})
	if ran := count(t, dir, "a-pre"); ran < 1 || ran > 2 {
		t.Errorf("step %d: the preStop hook ran %d times: %v\n%s", step, ran, lines(t, dir), n.Log()[max(0, len(n.Log())-4000):])
	}
	await("something of it is left", func() bool {
		nothing, _ := nothingIn(filepath.Join(n.Dir, "data", "pods"))
		return nothing
	})
	// It may be dying just now, at the very last step.
	n.Kill()
	return died != nil && !strings.Contains(n.Log(), "failpoint agent/")
}

// patience is how long a step may take that goes wrong.
const patience = 2 * time.Minute

// nothingIn says whether nothing is in a directory but a bin with nothing in it, or what is.
func nothingIn(dir string) (bool, string) {
	left, err := os.ReadDir(dir)
	left = slices.DeleteFunc(left, func(e os.DirEntry) bool {
		in, err := os.ReadDir(filepath.Join(dir, e.Name()))
		return e.Name() == tree.BinName && err == nil && len(in) == 0
	})
	return len(left) == 0 && (err == nil || os.IsNotExist(err)), fmt.Sprint(left, err)
}

func lines(t *testing.T, dir string) []string {
	data, err := os.ReadFile(filepath.Join(dir, "life"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Fields(string(data))
}

func count(t *testing.T, dir, word string) (n int) {
	for _, l := range lines(t, dir) {
		if l == word {
			n++
		}
	}
	return n
}

func describe(n *harness.Node) string {
	out, err := n.TryKubectl("", "get", "pod", "life", "-o", "yaml")
	if err != nil {
		return err.Error()
	}
	return out
}
