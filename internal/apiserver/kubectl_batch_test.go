package apiserver_test

import (
	"strings"
	"testing"
)

const jobYAML = `
apiVersion: batch/v1
kind: Job
metadata: {name: count}
spec:
  template:
    metadata: {labels: {app: count}}
    spec: {restartPolicy: Never, containers: [{name: c, image: i}]}
`

// kubectlJobs: jobs get what marks their pods, change where they may, and are shown as upstream's.
func kubectlJobs(t *testing.T, k kubectl) {
	k.run("create", "namespace", "batch")
	in := func(args ...string) []string { return append([]string{"-n", "batch"}, args...) }
	k.feed(jobYAML, in("create", "-f", "-")...)
	get := func(path string) string {
		t.Helper()
		return k.run(in("get", "job", "count", "-o", "jsonpath="+path)...)
	}
	uid := get("{.metadata.uid}")
	if got, want := get("{.spec.selector.matchLabels}"), `{"batch.kubernetes.io/controller-uid":"`+uid+`"}`; got != want {
		t.Errorf("selector %s, want %s", got, want)
	}
	own := `{"app":"count","batch.kubernetes.io/controller-uid":"` + uid + `","batch.kubernetes.io/job-name":"count","controller-uid":"` + uid + `","job-name":"count"}`
	if got := get("{.spec.template.metadata.labels} {.metadata.labels}"); got != own+" "+own {
		t.Errorf("labels of the pods and of the job are %s, want %s", got, own)
	}
	if got, want := get("{.spec.completions} {.spec.parallelism} {.spec.backoffLimit} {.spec.completionMode} {.spec.suspend} {.spec.podReplacementPolicy} {.spec.manualSelector} {.metadata.generation}"),
		"1 1 6 NonIndexed false TerminatingOrFailed false 1"; got != want {
		t.Errorf("defaults %q, want %q", got, want)
	}

	k.feed(jobYAML, in("apply", "-f", "-")...) // what it was made from leaves it as it is
	k.run(in("patch", "job", "count", "-p", `{"spec":{"parallelism":2}}`)...)
	k.fail("field is immutable", "", in("patch", "job", "count", "-p", `{"spec":{"completions":2}}`)...)
	k.fail("field is immutable", "", in("patch", "job", "count", "-p", `{"spec":{"template":{"spec":{"nodeSelector":{"a":"b"}}}}}`)...)
	k.run(in("patch", "job", "count", "-p", `{"spec":{"suspend":true}}`)...)
	k.run(in("patch", "job", "count", "-p", `{"spec":{"template":{"spec":{"nodeSelector":{"a":"b"}}}}}`)...)
	k.run(in("patch", "job", "count", "--subresource=status", "-p", `{"status":{"startTime":"2026-01-01T10:00:00Z","succeeded":1}}`)...)
	k.fail("cannot set Complete=True condition without", "", in("patch", "job", "count", "--subresource=status", "-p",
		`{"status":{"completionTime":"2026-01-01T10:01:00Z","conditions":[{"type":"Complete","status":"True"}]}}`)...)
	k.run(in("patch", "job", "count", "--subresource=status", "-p",
		`{"status":{"completionTime":"2026-01-01T10:01:00Z","conditions":[{"type":"SuccessCriteriaMet","status":"True"},{"type":"Complete","status":"True"}]}}`)...)
	if got := get("{.metadata.generation}"); got != "4" {
		t.Errorf("generation %s after three changes of the specification, want 4", got)
	}
	k.run(in("wait", "--for=condition=complete", "job/count", "--timeout=60s")...)
	if got := columns(k.run(in("get", "jobs")...)); strings.Join(got[0], " ") != "NAME STATUS COMPLETIONS DURATION AGE" || strings.Join(got[1][:4], " ") != "count Complete 1/1 60s" {
		t.Errorf("get jobs: %q", got)
	}
	if got := k.run(in("get", "jobs", "--field-selector=status.successful=1", "-o", "name")...) + k.run(in("get", "jobs", "--field-selector=status.successful=0", "-o", "name")...); got != "job.batch/count\n" {
		t.Errorf("by their successes: %q", got)
	}

	k.run(in("create", "cronjob", "tick", "--image=i", "--schedule=*/5 * * * *")...)
	k.fail("spec.schedule: Invalid value", "", in("create", "cronjob", "tock", "--image=i", "--schedule=often")...)
	k.run(in("create", "job", "--from=cronjob/tick", "now")...)
	if got := k.run(in("get", "cj", "tick", "-o", "jsonpath={.spec.concurrencyPolicy} {.spec.successfulJobsHistoryLimit} {.spec.failedJobsHistoryLimit} {.spec.suspend}")...); got != "Allow 3 1 false" {
		t.Errorf("defaults of a cron job: %q", got)
	}
	for _, want := range []string{"job.batch/count", "job.batch/now", "cronjob.batch/tick"} {
		if all := k.run(in("get", "all", "-o", "name")...); !strings.Contains(all, want) {
			t.Errorf("get all has no %s: %s", want, all)
		}
	}

	// Without a word about them the pods of a job stay, as the first version of the API has it; kubectl says a word.
	owner := k.run(in("get", "job", "now", "-o", "jsonpath={.metadata.uid}")...)
	k.feed(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"owned","ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"now","uid":"`+owner+`"}]}}`,
		in("create", "-f", "-")...)
	_, warned, ok := k.try("", "delete", "--raw", "/apis/batch/v1/namespaces/batch/jobs/now")
	if !ok || !strings.Contains(warned, "the pods of a deleted job stay by default") {
		t.Errorf("deletion without a policy: %v, %q", ok, warned)
	}
	k.run(in("wait", "--for=delete", "job/now", "--timeout=60s")...)
	if got := k.run(in("get", "configmap", "owned", "-o", "jsonpath={.metadata.name}{.metadata.ownerReferences}")...); got != "owned" {
		t.Errorf("what the job owned is %q, want it without an owner", got)
	}
	k.run(in("delete", "job", "count")...)
	k.run(in("delete", "cronjob", "tick")...)
	k.run("delete", "namespace", "batch", "--wait=false")
}
