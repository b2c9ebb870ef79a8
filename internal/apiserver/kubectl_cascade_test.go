package apiserver_test

import (
	"fmt"
	"strings"
	"testing"
)

// What becomes of dependents when their owner is deleted.
func kubectlCascade(t *testing.T, k kubectl) {
	k.run("create", "namespace", "cascade")
	family := func(owner string) (child string) {
		t.Helper()
		k.run("-n", "cascade", "create", "configmap", owner)
		uid := k.run("-n", "cascade", "get", "configmap", owner, "-o", "jsonpath={.metadata.uid}")
		child = owner + "-child"
		k.feed(fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":%q,
			"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":%q,"uid":%q,"blockOwnerDeletion":true}]}}`, child, owner, uid), "-n", "cascade", "create", "-f", "-")
		return child
	}
	child := family("background")
	k.run("-n", "cascade", "delete", "configmap", "background")
	if left, _, ok := k.try("", "-n", "cascade", "get", "secret", child, "-o", "name"); ok && left != "" {
		k.run("-n", "cascade", "wait", "--for=delete", "secret/"+child, "--timeout=60s")
	}
	child = family("foreground")
	k.run("-n", "cascade", "delete", "configmap", "foreground", "--cascade=foreground") // waits until it is gone
	k.fail(`"`+child+`" not found`, "", "-n", "cascade", "get", "secret", child)

	child = family("orphan")
	k.run("-n", "cascade", "delete", "configmap", "orphan", "--cascade=orphan")
	if owners := k.run("-n", "cascade", "get", "secret", child, "-o", "jsonpath={.metadata.ownerReferences}"); owners != "" {
		t.Errorf("the orphan has owners: %s", owners)
	}

	// Events own nothing and are watched by nobody who would take a finalizer off.
	k.feed(`{"apiVersion":"v1","kind":"Event","metadata":{"name":"e"},"involvedObject":{"kind":"ConfigMap","namespace":"cascade","name":"x"}}`, "-n", "cascade", "create", "-f", "-")
	k.run("-n", "cascade", "delete", "event", "e", "--cascade=foreground", "--timeout=60s")

	// A namespace waits for the collector as well as for its content.
	k.run("delete", "namespace", "cascade", "--cascade=foreground", "--timeout=60s")
	if left := k.run("get", "namespaces", "-o", "name"); strings.Contains(left, "cascade") {
		t.Errorf("left are %s", left)
	}
}
