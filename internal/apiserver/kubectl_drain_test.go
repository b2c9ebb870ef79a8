package apiserver_test

import (
	"strings"
	"testing"
)

// kubectlDrain: pods are evicted from a node.
func kubectlDrain(t *testing.T, k kubectl) {
	k.run("create", "namespace", "drain")
	k.feed(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"drained"}}`, "create", "-f", "-")
	pod := func(name string) {
		t.Helper()
		k.feed(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"`+name+`","namespace":"drain"},
			"spec":{"nodeName":"drained","containers":[{"name":"c","image":"x"}]}}`, "create", "-f", "-")
	}
	pod("one")
	pod("two")
	get := func(path string) string {
		t.Helper()
		return k.run("-n", "drain", "get", "pod", "one", "-o", "jsonpath="+path)
	}
	if got := get(`{range .spec.tolerations[*]}{.key}:{.effect}:{.tolerationSeconds} {end}`); got != "node.kubernetes.io/not-ready:NoExecute:300 node.kubernetes.io/unreachable:NoExecute:300 " {
		t.Errorf("the pod tolerates %q", got)
	}

	evict := func(name, options string) (string, string, bool) {
		t.Helper()
		return k.try(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"`+name+`","namespace":"drain"},"deleteOptions":`+options+`}`,
			"create", "--raw", "/api/v1/namespaces/drain/pods/one/eviction", "-f", "-")
	}
	for options, want := range map[string]string{
		`{"preconditions":{"uid":"x"}}`:             "the UID in the precondition (x) does not match",
		`{"preconditions":{"resourceVersion":"1"}}`: "the ResourceVersion in the precondition (1) does not match",
	} {
		if _, stderr, ok := evict("one", options); ok || !strings.Contains(stderr, want) {
			t.Errorf("%s: %v, %q, want %q", options, ok, stderr, want)
		}
	}
	if _, stderr, ok := evict("two", "{}"); ok || !strings.Contains(stderr, `the Eviction is named "two"`) {
		t.Errorf("another name: %v, %q", ok, stderr)
	}
	if _, stderr, ok := evict("one", `{"dryRun":["All"]}`); !ok {
		t.Errorf("dry run: %s", stderr)
	}
	if got := get(`{.metadata.deletionTimestamp}{.status.conditions}`); got != "" {
		t.Errorf("after refusals and a dry run the pod has %s", got)
	}
	// With a version the pod goes as well, though the condition has made another one of it.
	if _, stderr, ok := evict("one", `{"preconditions":{"resourceVersion":"`+get(`{.metadata.resourceVersion}`)+`"}}`); !ok {
		t.Errorf("of a version: %s", stderr)
	}
	if got := get(`{.status.conditions[?(@.type=="DisruptionTarget")].reason} {.metadata.deletionGracePeriodSeconds}`); got != "EvictionByEvictionAPI 30" {
		t.Errorf("the evicted pod has %q", got)
	}

	k.run("drain", "drained", "--dry-run=server", "--force")
	k.run("drain", "drained", "--force", "--grace-period=0", "--timeout=60s")
	if left := k.run("-n", "drain", "get", "pods", "--field-selector=spec.nodeName=drained", "-o", "name"); left != "" {
		t.Errorf("left on the node are %s", left)
	}
	if got := k.run("get", "node", "drained", "-o", "jsonpath={.spec.unschedulable}"); got != "true" {
		t.Errorf("the drained node has unschedulable %q", got)
	}
	k.run("delete", "node", "drained")
	k.run("delete", "namespace", "drain", "--wait=false")
}
