package e2e

import (
	"strings"
	"testing"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

// TestJobs runs what people do with jobs and cron jobs, on one node.
func TestJobs(t *testing.T) {
	n := harness.StartNode(t, harness.Options{HostsTOML: harness.PushImages(t, registryHost, map[string]harness.ImageMaker{"test/busybox": images.Busybox})})

	n.Kubectl("create", "cronjob", "nightly", "--image="+busybox, "--schedule=0 3 * * *", "--", "sh", "-c", "echo hello from the cron job")
	n.Kubectl("create", "job", "by-hand", "--from=cronjob/nightly")
	n.Kubectl("wait", "--for=condition=complete", "job/by-hand", "--timeout=60s")
	if got := n.Kubectl("logs", "job/by-hand"); !strings.Contains(got, "hello from the cron job") {
		t.Errorf("the job's log is %q", got)
	}
	n.Kubectl("wait", "--for=jsonpath={.status.lastSuccessfulTime}", "cronjob/nightly", "--timeout=60s")
	n.Kubectl("delete", "cronjob", "nightly")
	n.Kubectl("wait", "--for=delete", "job/by-hand", "--timeout=60s")

	// Exit codes come from real containers: 42 fails the job at once.
	n.Apply(`{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "fails"}, "spec": {"ttlSecondsAfterFinished": 5,
		"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]},
		"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "` + busybox + `", "command": ["sh", "-c", "exit 42"]}]}}}}`)
	n.Kubectl("wait", "--for=condition=failed", "job/fails", "--timeout=60s")
	if got := n.Kubectl("get", "job", "fails", "-o", `jsonpath={.status.failed} {.status.conditions[?(@.type=="Failed")].reason}`); got != "1 PodFailurePolicy" {
		t.Errorf("the job that fails is %q", got)
	}
	n.Kubectl("wait", "--for=delete", "job/fails", "--timeout=60s")

	// Pods that run are ended by a suspension, are no failures, and others run when it is over.
	n.Apply(`{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "waits"}, "spec": {"completions": 2, "parallelism": 2, "completionMode": "Indexed",
		"template": {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "` + busybox + `", "command": ["sleep", "1000"]}]}}}}`)
	n.Kubectl("wait", "--for=jsonpath={.status.ready}=2", "job/waits", "--timeout=60s")
	n.Kubectl("patch", "job", "waits", "-p", `{"spec": {"suspend": true}}`)
	n.Kubectl("wait", "--for=condition=suspended", "job/waits", "--timeout=60s")
	n.Kubectl("wait", "--for=delete", "pod", "-l", "batch.kubernetes.io/job-name=waits", "--timeout=60s")
	n.Kubectl("patch", "job", "waits", "-p", `{"spec": {"suspend": false}}`)
	n.Kubectl("wait", "--for=jsonpath={.status.ready}=2", "job/waits", "--timeout=60s")
	if got := n.Kubectl("get", "job", "waits", "-o", `jsonpath={.status.failed} {.status.terminating}`); strings.TrimSpace(got) != "0" {
		t.Errorf("the job that was suspended has %q pods that have failed, and that end", got)
	}
	n.Kubectl("delete", "job", "waits", "--cascade=foreground")
}
