package rbac

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// stored is a storage of a list, whose watches a test feeds.
type stored struct {
	Storage
	mu      sync.Mutex
	list    runtime.Object
	watches chan *watch.FakeWatcher
}

func (s *stored) List(context.Context, *metainternalversion.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list.DeepCopyObject(), nil
}

func (s *stored) Watch(ctx context.Context, _ *metainternalversion.ListOptions) (watch.Interface, error) {
	w := watch.NewFake()
	context.AfterFunc(ctx, w.Stop)
	select {
	case s.watches <- w:
	case <-ctx.Done():
	}
	return w, nil
}

type cluster struct{ roles, bindings, clusterRoles, clusterBindings *stored }

func newCluster() cluster {
	at := func(list runtime.Object) *stored {
		return &stored{list: list, watches: make(chan *watch.FakeWatcher, 1)}
	}
	meta := metav1.ListMeta{ResourceVersion: "1"}
	return cluster{
		at(&rbacv1.RoleList{ListMeta: meta}), at(&rbacv1.RoleBindingList{ListMeta: meta}),
		at(&rbacv1.ClusterRoleList{ListMeta: meta}), at(&rbacv1.ClusterRoleBindingList{ListMeta: meta}),
	}
}

// run runs a policy on what is stored until the test ends.
func (c cluster) run(t testing.TB) *Policy {
	p := New(slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(ctx, Storages{Roles: c.roles, RoleBindings: c.bindings, ClusterRoles: c.clusterRoles, ClusterRoleBindings: c.clusterBindings})
	}()
	t.Cleanup(func() { cancel(); <-done })
	select {
	case <-p.Synced():
	case <-time.After(time.Minute):
		t.Fatal("the policy has not been read after a minute")
	}
	return p
}

func named(namespace, name, version string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: version}
}

// rule is "VERBS GROUPS RESOURCES[ NAMES]", or "VERBS PATHS" where the second begins with / or *; lists are separated by commas, "core" has no name.
func rule(s string) rbacv1.PolicyRule {
	f := strings.Fields(s)
	list := func(i int) []string {
		if i >= len(f) {
			return nil
		}
		return strings.Split(strings.ReplaceAll(f[i], "core", ""), ",")
	}
	if len(f) == 2 {
		return rbacv1.PolicyRule{Verbs: list(0), NonResourceURLs: list(1)}
	}
	return rbacv1.PolicyRule{Verbs: list(0), APIGroups: list(1), Resources: list(2), ResourceNames: list(3)}
}

func rules(all ...string) (made []rbacv1.PolicyRule) {
	for _, s := range all {
		made = append(made, rule(s))
	}
	return made
}

// to are subjects: user:joe, group:dev, sa:NAMESPACE/NAME.
func to(all ...string) (made []rbacv1.Subject) {
	for _, s := range all {
		kind, name, _ := strings.Cut(s, ":")
		switch kind {
		case "user":
			made = append(made, rbacv1.Subject{Kind: "User", Name: name})
		case "group":
			made = append(made, rbacv1.Subject{Kind: "Group", Name: name})
		case "sa":
			ns, name, _ := strings.Cut(name, "/")
			made = append(made, rbacv1.Subject{Kind: "ServiceAccount", Namespace: ns, Name: name})
		}
	}
	return made
}

func ref(kind, name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
}

// example has a cluster role for everybody of dev, a role in the namespace web, and a cluster role bound there only.
func example() cluster {
	c := newCluster()
	c.clusterRoles.list.(*rbacv1.ClusterRoleList).Items = []rbacv1.ClusterRole{
		{ObjectMeta: named("", "nodes", "1"), Rules: rules("get,list core nodes", "get /metrics,/logs/*")},
		{ObjectMeta: named("", "view", "1"), Rules: rules("get core pods,pods/log", "get * */scale", "get core configmaps settings")},
		{ObjectMeta: named("", "all", "1"), Rules: rules("* * *", "* *")},
	}
	c.clusterBindings.list.(*rbacv1.ClusterRoleBindingList).Items = []rbacv1.ClusterRoleBinding{
		{ObjectMeta: named("", "nodes", "1"), RoleRef: ref("ClusterRole", "nodes"), Subjects: to("group:dev", "user:joe", "group:dev")},
		{ObjectMeta: named("", "root", "1"), RoleRef: ref("ClusterRole", "all"), Subjects: to("user:root")},
		{ObjectMeta: named("", "lost", "1"), RoleRef: ref("ClusterRole", "gone"), Subjects: to("user:joe", "sa:/nobody")},
	}
	c.roles.list.(*rbacv1.RoleList).Items = []rbacv1.Role{{ObjectMeta: named("web", "secrets", "1"), Rules: rules("create core secrets")}}
	c.bindings.list.(*rbacv1.RoleBindingList).Items = []rbacv1.RoleBinding{
		{ObjectMeta: named("web", "view", "1"), RoleRef: ref("ClusterRole", "view"), Subjects: to("user:joe")},
		{ObjectMeta: named("web", "secrets", "1"), RoleRef: ref("Role", "secrets"), Subjects: to("sa:/builder", "sa:ci/robot")},
	}
	return c
}

// ask is "VERB /path" or "VERB group resource[/sub] [namespace/]name"; "-" is no name, "core" no group.
func ask(who user.Info, what string) authorizer.AttributesRecord {
	f := strings.Fields(what)
	a := authorizer.AttributesRecord{User: who, Verb: f[0]}
	if strings.HasPrefix(f[1], "/") {
		a.Path = f[1]
		return a
	}
	a.ResourceRequest, a.APIGroup = true, strings.TrimPrefix(f[1], "core")
	a.Resource, a.Subresource, _ = strings.Cut(f[2], "/")
	a.Name = f[3]
	if ns, name, ok := strings.Cut(f[3], "/"); ok {
		a.Namespace, a.Name = ns, name
	}
	a.Name = strings.TrimPrefix(a.Name, "-")
	return a
}

func TestAuthorize(t *testing.T) {
	p := example().run(t)
	dev := &user.DefaultInfo{Name: "ann", Groups: []string{"dev"}}
	joe := &user.DefaultInfo{Name: "joe"}
	root := &user.DefaultInfo{Name: "root"}
	builder := &user.DefaultInfo{Name: "system:serviceaccount:web:builder"}
	robot := &user.DefaultInfo{Name: "system:serviceaccount:ci:robot"}
	nobody := &user.DefaultInfo{Name: "system:serviceaccount::nobody"}
	for _, tc := range []struct {
		who  user.Info
		what string
		want string // the reason of who is let in
	}{
		{dev, "get core nodes n1", `ClusterRoleBinding "nodes" of ClusterRole "nodes" to Group "dev"`},
		{joe, "list core nodes -", `ClusterRoleBinding "nodes" of ClusterRole "nodes" to User "joe"`},
		{dev, "delete core nodes n1", ""},
		{dev, "get apps nodes n1", ""},
		{dev, "get core nodes/status n1", ""},
		{dev, "get /metrics", `ClusterRoleBinding "nodes" of ClusterRole "nodes" to Group "dev"`},
		{dev, "get /metrics/slis", ""},
		{dev, "get /logs/a/b", `ClusterRoleBinding "nodes" of ClusterRole "nodes" to Group "dev"`},
		{dev, "get /logs", ""},
		{dev, "post /metrics", ""},
		{root, "delete any things/sub there/x", `ClusterRoleBinding "root" of ClusterRole "all" to User "root"`},
		{root, "post /x", `ClusterRoleBinding "root" of ClusterRole "all" to User "root"`},
		{joe, "get core pods web/x", `RoleBinding "view/web" of ClusterRole "view" to User "joe"`},
		{joe, "get core pods/log web/x", `RoleBinding "view/web" of ClusterRole "view" to User "joe"`},
		{joe, "get core pods/exec web/x", ""},
		{joe, "get core pods other/x", ""},
		{joe, "get core pods -", ""},
		{joe, "get apps deployments/scale web/x", `RoleBinding "view/web" of ClusterRole "view" to User "joe"`},
		{joe, "get apps deployments web/x", ""},
		{joe, "get core configmaps web/settings", `RoleBinding "view/web" of ClusterRole "view" to User "joe"`},
		{joe, "get core configmaps web/other", ""},
		{joe, "get core configmaps web/-", ""},
		{builder, "create core secrets web/-", `RoleBinding "secrets/web" of Role "secrets" to ServiceAccount "builder/web"`},
		{robot, "create core secrets web/-", `RoleBinding "secrets/web" of Role "secrets" to ServiceAccount "robot/ci"`},
		{robot, "create core secrets ci/-", ""},
		{nobody, "get core nodes n1", ""},
		{nil, "get core nodes n1", ""},
	} {
		name := "nobody"
		if tc.who != nil {
			name = tc.who.GetName()
		}
		t.Run(strings.ReplaceAll(name+" "+tc.what, "/", ":"), func(t *testing.T) {
			for range 2 { // the reason is made once
				decision, reason, err := p.Authorize(t.Context(), ask(tc.who, tc.what))
				allowed := decision == authorizer.DecisionAllow
				if err != nil || allowed != (tc.want != "") || allowed && reason != "RBAC: allowed by "+tc.want {
					t.Errorf("decision %v (%s, %v), want %q", decision, reason, err, tc.want)
				}
			}
		})
	}
	_, reason, _ := p.Authorize(t.Context(), ask(joe, "delete core pods web/x"))
	if want := `RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found`; reason != strings.Replace(want, "clusterrole.", "clusterroles.", 1) {
		t.Errorf("the role that is missing is told as %q", reason)
	}
}

// A cluster role binding to a role, which validation refuses, does not give the cluster role of that name.
func TestReferences(t *testing.T) {
	p := example().run(t)
	for _, tc := range []struct {
		kind, name, namespace string
		want                  bool
	}{
		{"ClusterRole", "all", "", true}, {"ClusterRole", "all", "web", true}, {"Role", "secrets", "web", true},
		{"Role", "all", "", false}, {"Role", "all", "web", false}, {"Role", "secrets", "other", false}, {"Other", "all", "", false}, {"Other", "secrets", "web", false},
	} {
		if rules, err := p.RulesOf(ref(tc.kind, tc.name), tc.namespace); (err == nil) != tc.want || (len(rules) > 0) != tc.want {
			t.Errorf("%+v: %v, %v", tc, rules, err)
		}
	}
}

func TestRulesFor(t *testing.T) {
	p := example().run(t)
	both := &user.DefaultInfo{Name: "joe", Groups: []string{"dev"}}
	resources, paths, incomplete, err := p.RulesFor(t.Context(), both, "web")
	if len(resources) != 4 || len(paths) != 1 || incomplete || err == nil {
		t.Errorf("%d rules for resources, %d for paths, incomplete %v, %v; want 4, 1, and the role that is missing", len(resources), len(paths), incomplete, err)
	}
}

func TestCovers(t *testing.T) {
	p := example().run(t)
	joe := &user.DefaultInfo{Name: "joe", Groups: []string{"dev"}}
	if err := p.Covers(joe, "web", rules("get core pods/log", "list core nodes")); err != nil {
		t.Error(err)
	}
	if err := p.Covers(&user.DefaultInfo{Name: "root"}, "", rules("* * *", "get /x")); err != nil {
		t.Error(err)
	}
	err := p.Covers(joe, "web", rules("get,delete,watch core pods,secrets", "get /x,/metrics", "get core secrets a,b"))
	want := `user "joe" (groups=["dev"]) is attempting to grant RBAC permissions not currently held:
{APIGroups:[""], Resources:["pods"], Verbs:["delete" "watch"]}
{APIGroups:[""], Resources:["secrets"], ResourceNames:["a"], Verbs:["get"]}
{APIGroups:[""], Resources:["secrets"], ResourceNames:["b"], Verbs:["get"]}
{APIGroups:[""], Resources:["secrets"], Verbs:["get" "delete" "watch"]}
{NonResourceURLs:["/x"], Verbs:["get"]}`
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v\nwant\n%s", err, want)
	}
}

// What changes is in force when the watch has told it, and when a list has shown what a watch has not.
func TestFollows(t *testing.T) {
	c := example()
	p := c.run(t)
	joe := &user.DefaultInfo{Name: "joe"}
	allowed := func(who user.Info, what string) bool {
		t.Helper()
		decision, _, err := p.Authorize(t.Context(), ask(who, what))
		if err != nil {
			t.Fatal(err)
		}
		return decision == authorizer.DecisionAllow
	}
	expect := func(what string, want bool) {
		t.Helper()
		if got := allowed(joe, what); got != want {
			t.Errorf("%s: allowed %v, want %v", what, got, want)
		}
	}
	roles, bindings, clusterBindings := <-c.roles.watches, <-c.bindings.watches, <-c.clusterBindings.watches

	roles.Add(&rbacv1.Role{ObjectMeta: named("web", "write", "5"), Rules: rules("delete core pods")})
	p.Await("roles", "5")
	expect("delete core pods web/x", false)
	bindings.Add(&rbacv1.RoleBinding{ObjectMeta: named("web", "write", "6"), RoleRef: ref("Role", "write"), Subjects: to("user:joe")})
	p.Await("rolebindings", "6")
	expect("delete core pods web/x", true)
	roles.Modify(&rbacv1.Role{ObjectMeta: named("web", "write", "7"), Rules: rules("patch core pods")})
	p.Await("roles", "7")
	expect("delete core pods web/x", false)
	expect("patch core pods web/x", true)
	bindings.Modify(&rbacv1.RoleBinding{ObjectMeta: named("web", "write", "8"), RoleRef: ref("Role", "write"), Subjects: to("user:ann")})
	p.Await("rolebindings", "8")
	expect("patch core pods web/x", false)
	clusterBindings.Delete(&rbacv1.ClusterRoleBinding{ObjectMeta: named("", "nodes", "9")})
	p.Await("clusterrolebindings", "9")
	expect("get core nodes n1", false)
	if len(p.grants[""]) != 2 { // root, and joe's role that is missing
		t.Errorf("subjects of cluster role bindings: %v", p.grants[""])
	}

	// The watch breaks; what is listed afterwards is all there is.
	c.bindings.mu.Lock()
	c.bindings.list.(*rbacv1.RoleBindingList).ResourceVersion = "20"
	c.bindings.list.(*rbacv1.RoleBindingList).Items = c.bindings.list.(*rbacv1.RoleBindingList).Items[1:]
	c.bindings.mu.Unlock()
	bindings.Stop()
	<-c.bindings.watches
	expect("get core pods web/x", false)
	if !allowed(&user.DefaultInfo{Name: "system:serviceaccount:ci:robot"}, "create core secrets web/-") {
		t.Error("a binding that was in both lists has gone")
	}
	if len(p.bindings) != 3 {
		t.Errorf("bindings: %v", p.bindings)
	}
}

// Nothing is decided before all has been read.
func TestWaitsForTheFirstList(t *testing.T) {
	p := New(slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	root := &user.DefaultInfo{Name: "root"}
	if decision, _, err := p.Authorize(ctx, ask(root, "get core nodes n1")); decision == authorizer.DecisionAllow || err == nil {
		t.Errorf("decision %v, error %v, want none and why", decision, err)
	}
	p.Await("roles", "7") // returns at once
}

// A decision among thousands of bindings, for one of their users. Most of it is the comparison of the rules of three roles.
func BenchmarkAuthorize(b *testing.B) {
	for _, bindings := range []int{10, 10_000} {
		b.Run(fmt.Sprint(bindings), func(b *testing.B) {
			c := example()
			for n := range bindings {
				name := fmt.Sprintf("b%d", n)
				c.clusterBindings.list.(*rbacv1.ClusterRoleBindingList).Items = append(c.clusterBindings.list.(*rbacv1.ClusterRoleBindingList).Items,
					rbacv1.ClusterRoleBinding{ObjectMeta: named("", name, "1"), RoleRef: ref("ClusterRole", "nodes"), Subjects: to("user:" + name)})
				c.bindings.list.(*rbacv1.RoleBindingList).Items = append(c.bindings.list.(*rbacv1.RoleBindingList).Items,
					rbacv1.RoleBinding{ObjectMeta: named("web", name, "1"), RoleRef: ref("ClusterRole", "view"), Subjects: to("user:" + name)})
			}
			p := c.run(b)
			asked := ask(&user.DefaultInfo{Name: "b7", Groups: slices.Repeat([]string{"none", "dev"}, 2)}, "get core configmaps web/settings")
			b.ReportAllocs()
			for b.Loop() {
				if decision, _, _ := p.Authorize(b.Context(), asked); decision != authorizer.DecisionAllow {
					b.Fatal("not allowed")
				}
			}
		})
	}
}
