package apiserver_test

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// What people do with roles by the real kubectl: an administrator, and joe of the groups dev and ops.
func TestRoles(t *testing.T) {
	i := startWithTokens(t)
	defer i.end(t)
	admin := i.kubectl(t)
	joe := kubectl{t: t, kubeconfig: tokenKubeconfig(t, i, "joes"), home: t.TempDir()}
	for name, test := range map[string]func(*testing.T, kubectl, kubectl){
		"in force at once": rolesInForce, "view": rolesView, "what one has not got": rolesEscalation, "bind and escalate": rolesVerbs,
		"what may I": rolesList, "reconcile": rolesReconcile, "tables": rolesTables,
	} {
		t.Run(name, func(t *testing.T) {
			admin, joe := admin, joe
			admin.t, joe.t = t, t
			test(t, admin, joe)
		})
	}
}

func rolesInForce(t *testing.T, admin, joe kubectl) {
	admin.run("create", "namespace", "force")
	admin.run("-n", "force", "create", "role", "reader", "--verb=get,list", "--resource=configmaps")
	joe.fail(`User "joe" cannot list resource "configmaps" in API group "" in the namespace "force"`, "", "-n", "force", "get", "configmaps")
	admin.run("-n", "force", "create", "rolebinding", "reader", "--role=reader", "--user=joe")
	joe.run("-n", "force", "get", "configmaps")
	if out := joe.run("-n", "force", "auth", "can-i", "list", "configmaps"); out != "yes\n" {
		t.Errorf("can-i: %q", out)
	}
	joe.fail("cannot list", "", "-n", "default", "get", "configmaps")
	joe.fail("cannot create", "", "-n", "force", "create", "configmap", "x")
	admin.run("-n", "force", "patch", "role", "reader", "--type=json", "-p", `[{"op":"add","path":"/rules/0/verbs/-","value":"create"}]`)
	joe.run("-n", "force", "create", "configmap", "x")
	admin.fail("field is immutable", "", "-n", "force", "patch", "rolebinding", "reader", "-p", `{"roleRef":{"name":"other"}}`)
	admin.run("-n", "force", "delete", "rolebinding", "reader")
	joe.fail("cannot list", "", "-n", "force", "get", "configmaps")

	// A group, everywhere; and somebody else's name by who may take it.
	admin.run("create", "clusterrole", "nodes", "--verb=list", "--resource=nodes")
	admin.run("create", "clusterrolebinding", "nodes", "--clusterrole=nodes", "--group=ops")
	joe.run("get", "nodes")
	admin.run("get", "nodes", "--as", "ann", "--as-group", "ops")
	admin.fail(`User "ann" cannot list`, "", "get", "nodes", "--as", "ann")
	admin.run("delete", "namespace", "force", "--wait=false") // nobody here empties it
}

func rolesView(t *testing.T, admin, joe kubectl) {
	admin.run("create", "namespace", "seen")
	admin.run("-n", "seen", "create", "rolebinding", "view", "--clusterrole=view", "--group=dev")
	admin.run("-n", "seen", "create", "secret", "generic", "password", "--from-literal=a=b")
	for _, what := range []string{"pods", "configmaps", "events"} {
		joe.run("-n", "seen", "get", what)
	}
	for _, what := range []string{"secrets", "roles", "leases"} {
		joe.fail("cannot list", "", "-n", "seen", "get", what)
	}
	for what, want := range map[string]string{
		"get pods --subresource=log": "yes\n", "create pods --subresource=exec": "no\n", "get pods --subresource=exec": "no\n", "delete pods": "no\n",
		"get namespaces": "yes\n",
	} {
		if out, _, _ := joe.try("", append([]string{"-n", "seen", "auth", "can-i"}, strings.Fields(what)...)...); out != want {
			t.Errorf("who may view may %s: %q", what, out)
		}
	}
}

func rolesEscalation(t *testing.T, admin, joe kubectl) {
	admin.run("create", "namespace", "team")
	admin.run("-n", "team", "create", "rolebinding", "admin", "--clusterrole=admin", "--user=joe")
	joe.run("-n", "team", "create", "role", "mine", "--verb=get,list", "--resource=configmaps,secrets")
	joe.run("-n", "team", "create", "rolebinding", "mine", "--role=mine", "--user=ann")
	joe.run("-n", "team", "create", "rolebinding", "seen", "--clusterrole=view", "--user=ann")
	if out := admin.run("-n", "team", "auth", "can-i", "list", "secrets", "--as", "ann"); out != "yes\n" {
		t.Errorf("the binding that joe made: %q", out)
	}
	const refused = `roles.rbac.authorization.k8s.io "more" is forbidden: user "joe" (groups=["dev" "ops" "system:authenticated"]) ` +
		`is attempting to grant RBAC permissions not currently held:` + "\n" + `{APIGroups:[""], Resources:["nodes"], Verbs:["delete" "get"]}`
	joe.fail(refused, "", "-n", "team", "create", "role", "more", "--verb=delete,get", "--resource=nodes")
	joe.fail(`is attempting to grant RBAC permissions not currently held:`+"\n"+`{APIGroups:["*"], Resources:["*"], Verbs:["*"]}`, "",
		"-n", "team", "create", "rolebinding", "root", "--clusterrole=cluster-admin", "--user=joe")
	joe.fail(`roles.rbac.authorization.k8s.io "none" not found`, "", "-n", "team", "create", "rolebinding", "none", "--role=none", "--user=joe")
	joe.fail("is attempting to grant RBAC permissions not currently held", "", "-n", "team", "patch", "role", "mine", "--type=json",
		"-p", `[{"op":"add","path":"/rules/0/resources/-","value":"nodes"}]`)
	joe.run("-n", "team", "label", "role", "mine", "a=b")
	joe.fail("cannot create resource", "", "create", "clusterrole", "mine", "--verb=get", "--resource=configmaps")
}

func rolesVerbs(t *testing.T, admin, joe kubectl) {
	admin.run("create", "namespace", "verbs")
	const roles = "roles.rbac.authorization.k8s.io"
	admin.run("-n", "verbs", "create", "role", "writer", "--verb=create,update,patch", "--resource=roles,rolebindings")
	admin.run("-n", "verbs", "create", "rolebinding", "writer", "--role=writer", "--user=joe")
	joe.fail("not currently held", "", "-n", "verbs", "create", "role", "pods", "--verb=get", "--resource=pods")
	joe.fail("not currently held", "", "-n", "verbs", "create", "rolebinding", "view", "--clusterrole=view", "--user=joe")
	admin.run("-n", "verbs", "create", "role", "escalate", "--verb=escalate", "--resource="+roles)
	admin.run("-n", "verbs", "create", "rolebinding", "escalate", "--role=escalate", "--user=joe")
	admin.run("create", "clusterrole", "bind-view", "--verb=bind", "--resource=clusterroles", "--resource-name=view")
	admin.run("-n", "verbs", "create", "rolebinding", "bind-view", "--clusterrole=bind-view", "--user=joe")
	joe.run("-n", "verbs", "create", "role", "pods", "--verb=get", "--resource=pods")
	joe.run("-n", "verbs", "create", "rolebinding", "view", "--clusterrole=view", "--user=joe")
	joe.fail("not currently held", "", "-n", "verbs", "create", "rolebinding", "edit", "--clusterrole=edit", "--user=joe")

	admin.run("create", "clusterrole", "role-writer", "--verb=create", "--resource=clusterroles")
	admin.run("create", "clusterrolebinding", "role-writer", "--clusterrole=role-writer", "--user=joe")
	joe.fail("must have cluster-admin privileges to use the aggregationRule", "", "create", "clusterrole", "sum", "--aggregation-rule=a=b")
	admin.run("delete", "clusterrolebinding", "role-writer") // other tests count on it that joe has no such right
}

func rolesList(t *testing.T, admin, joe kubectl) {
	table := joe.run("auth", "can-i", "--list")
	for _, want := range []string{"selfsubjectrulesreviews.authorization.k8s.io", "selfsubjectreviews.authentication.k8s.io", "[/apis/*]", "[/version]"} {
		if !strings.Contains(table, want) {
			t.Errorf("what joe may has no %s:\n%s", want, table)
		}
	}
	if table := admin.run("auth", "can-i", "--list"); !strings.Contains(table, "*.*") {
		t.Errorf("what an administrator may:\n%s", table)
	}
}

const reconciled = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reconciled}
rules: [{apiGroups: [""], resources: [pods], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reconciled, namespace: default}
roleRef: {kind: ClusterRole, name: reconciled}
subjects: [{kind: User, name: ann}]
`

func rolesReconcile(t *testing.T, admin, _ kubectl) {
	admin.feed(reconciled, "auth", "reconcile", "-f", "-")
	admin.run("patch", "clusterrole", "reconciled", "--type=json", "-p", `[{"op":"replace","path":"/rules/0/verbs","value":["watch"]}]`)
	// The role of a binding cannot change, so it is made anew.
	out := admin.feed(strings.ReplaceAll(reconciled, "roleRef: {kind: ClusterRole, name: reconciled}", "roleRef: {kind: ClusterRole, name: view}"), "auth", "reconcile", "-f", "-")
	if !strings.Contains(out, "clusterrole.rbac.authorization.k8s.io/reconciled reconciled") {
		t.Errorf("reconcile: %s", out)
	}
	got := admin.run("get", "clusterrole", "reconciled", "-o", "jsonpath={.rules[*].verbs}")
	if want := `["watch"] ["get"] ["list"]`; got != want {
		t.Errorf("rules of the reconciled role: %s, want %s", got, want)
	}
	if got := admin.run("get", "rolebinding", "reconciled", "-o", "jsonpath={.roleRef.name} {.roleRef.apiGroup} {.subjects[0].apiGroup}"); got != "view "+rbacv1.GroupName+" "+rbacv1.GroupName {
		t.Errorf("the reconciled binding: %s", got)
	}
}

func rolesTables(t *testing.T, admin, _ kubectl) {
	rows := columns(admin.run("get", "clusterroles"))
	if strings.Join(rows[0], " ") != "NAME CREATED AT" || !strings.HasSuffix(rows[1][1], "Z") {
		t.Errorf("clusterroles: %q %q", rows[0], rows[1])
	}
	rows = columns(admin.run("get", "clusterrolebinding", "system:public-info-viewer", "-o", "wide"))
	if strings.Join(rows[0], " ") != "NAME ROLE AGE USERS GROUPS SERVICEACCOUNTS" ||
		strings.Join(rows[1][3:], " ") != "system:authenticated, system:unauthenticated" || rows[1][1] != "ClusterRole/system:public-info-viewer" {
		t.Errorf("clusterrolebindings: %q", rows)
	}
	rows = columns(admin.run("-n", "kube-system", "get", "rolebindings", "system::leader-locking-kube-scheduler", "-o", "wide"))
	if strings.Join(rows[1][3:], " ") != "system:kube-scheduler kube-system/kube-scheduler" {
		t.Errorf("rolebindings: %q", rows)
	}
}

// The cluster's own roles are brought up to what they should be at each start, and nothing else of them is written.
func TestRolesAtStart(t *testing.T) {
	cfg := newConfig(t)
	i := start(t, cfg)
	c := i.admin(t)
	roles := c.RbacV1().ClusterRoles()
	patch := func(name, patch string) {
		t.Helper()
		if _, err := roles.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	patch("system:discovery", `{"metadata":{"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"false"}},"rules":[]}`)
	patch("system:public-info-viewer", `{"rules":[{"verbs":["get"],"nonResourceURLs":["/mine"]}]}`)
	patch("view", `{"rules":[]}`)
	if err := roles.Delete(t.Context(), "system:basic-user", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	binding, err := c.RbacV1().ClusterRoleBindings().Patch(t.Context(), "system:basic-user", types.MergePatchType, []byte(`{"subjects":null}`), metav1.PatchOptions{})
	if err != nil || len(binding.Subjects) != 0 {
		t.Fatal(binding, err)
	}
	before := roleVersions(t, c)
	i.end(t)

	i = start(t, cfg)
	defer i.end(t)
	c = i.admin(t)
	after := roleVersions(t, c)
	for name, version := range before {
		if changed := after[name] != version; changed != (name == "system:public-info-viewer") {
			t.Errorf("the role %s was written: %v", name, changed)
		}
	}
	if after["system:basic-user"] == "" {
		t.Error("a role that was deleted is not back")
	}
	role, err := c.RbacV1().ClusterRoles().Get(t.Context(), "system:public-info-viewer", metav1.GetOptions{})
	if err != nil || len(role.Rules) < 2 || role.Rules[0].NonResourceURLs[0] != "/mine" {
		t.Errorf("a role that was changed: %+v, %v", role.Rules, err)
	}
	if binding, err := c.RbacV1().ClusterRoleBindings().Get(t.Context(), "system:basic-user", metav1.GetOptions{}); err != nil || len(binding.Subjects) != 1 {
		t.Errorf("a binding whose subjects were taken: %+v, %v", binding, err)
	}
}

func roleVersions(t *testing.T, c kubernetes.Interface) map[string]string {
	t.Helper()
	list, err := c.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, r := range list.Items {
		all[r.Name] = r.ResourceVersion
	}
	return all
}
