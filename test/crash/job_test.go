package crash

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

// work is a job whose pods write down their index when they run.
const work = `
apiVersion: batch/v1
kind: Job
metadata: {name: work}
spec:
  completionMode: Indexed
  completions: 2
  parallelism: 2
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      volumes: [{name: out, hostPath: {path: DIR}}]
      containers:
      - {name: c, image: localhost/test/busybox:1, volumeMounts: [{name: out, mountPath: /out}], command: [sh, -c, echo $(hostname) $JOB_COMPLETION_INDEX >> /out/life]}
`

// TestDeathAtEachStepOfAJob kills monopod at each step of the job controller, one after the other (in short tests at some of them): each pod runs once and
// counts once, and none is left that cannot go.
func TestDeathAtEachStepOfAJob(t *testing.T) {
	n := harness.NewNode(t, harness.Options{})
	image := harness.Archive(t, "localhost/test/busybox:1", images.Busybox)
	n.Start()
	n.LoadImage(image)
	n.Stop()
	for step := 1; ; step += stride() {
		if passed := jobDiesAt(t, n, step); passed || t.Failed() {
			if step < 10 {
				t.Errorf("only %d steps were found", step-1)
			}
			return
		}
	}
}

// jobDiesAt lets monopod end at a step of a job and goes on with another one. It says whether the job has fewer steps.
func jobDiesAt(t *testing.T, n *harness.Node, step int) (passed bool) {
	t.Helper()
	dir := t.TempDir()
	n.Setenv(failpoint.EnvVar, fmt.Sprintf("controllers/job/...=kill-at:%d", step))
	n.Start()
	died := n.Died()
	n.Setenv(failpoint.EnvVar, "")
	var seen string
	await := func(what string, done func() bool) {
		for end := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
			select {
			case <-died:
				n.Start()
				died = nil
			default:
			}
			if time.Now().After(end) {
				t.Fatalf("step %d: %s: %s\n%s", step, what, seen, n.Log()[max(0, len(n.Log())-4000):])
			}
		}
	}
	get := func(into any, args ...string) bool {
		out, err := n.TryKubectl("", append([]string{"get", "-o", "json"}, args...)...)
		seen = out
		return err == nil && json.Unmarshal([]byte(out), into) == nil
	}
	await("the job was not created", func() bool {
		_, err := n.TryKubectl(strings.ReplaceAll(work, "DIR", dir), "apply", "-f", "-")
		return err == nil
	})
	var j batchv1.Job
	await("it does not end", func() bool { return get(&j, "job", "work") && j.Status.CompletionTime != nil })
	if s := j.Status; s.Succeeded != 2 || s.Failed != 0 || s.CompletedIndexes != "0,1" {
		t.Errorf("step %d: the job's status is %+v", step, s)
	}
	if ran := lines(t, dir); !slices.Equal(slices.Sorted(slices.Values(ran)), []string{"0", "1", "work-0", "work-1"}) {
		t.Errorf("step %d: these have run: %v", step, ran)
	}
	var pods corev1.PodList
	await("the pods are not two that can go", func() bool {
		return get(&pods, "pods", "-l", "batch.kubernetes.io/job-name=work") && len(pods.Items) == 2 && len(pods.Items[0].Finalizers)+len(pods.Items[1].Finalizers) == 0
	})
	await("it was not deleted", func() bool {
		_, err := n.TryKubectl("", "delete", "job", "work", "--ignore-not-found", "--cascade=foreground", "--timeout=5s")
		return err == nil
	})
	// It may be dying just now, at the very last step.
	n.Kill()
	return died != nil && !strings.Contains(n.Log(), "failpoint controllers/")
}
