package controllers_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"monopod.dev/monopod/internal/apiserver"
	"monopod.dev/monopod/internal/controllers/aggregate"
)

func serveRoles(t *testing.T) kubernetes.Interface {
	t.Helper()
	dir, err := os.MkdirTemp("", "mp-agg-") // short, because etcd's socket is in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s, err := apiserver.New(t.Context(), apiserver.Config{
		DataDir: filepath.Join(dir, "data"), RunDir: filepath.Join(dir, "run"), BindAddress: "127.0.0.1",
		EtcdTick: 10 * time.Millisecond, NodeName: "n1", Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	aggregateBeside(t, s.Run)
	select {
	case <-s.Ready():
	case <-time.After(time.Minute):
		t.Fatal("the API server is not ready after a minute")
	}
	client, err := kubernetes.NewForConfig(s.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// aggregateBeside runs something until the test ends.
func aggregateBeside(t *testing.T, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func startAggregate(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	shared := informers.NewSharedInformerFactory(client, 0)
	c, err := aggregate.New(aggregate.Config{Client: client.RbacV1(), ClusterRoles: shared.Rbac().V1().ClusterRoles(), Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	aggregateBeside(t, func(ctx context.Context) error {
		shared.StartWithContext(ctx)
		defer shared.Shutdown()
		return c.Run(ctx)
	})
}

// untilRole waits for a version of a role that is right.
func untilRole(t *testing.T, client kubernetes.Interface, name string, right func(*rbacv1.ClusterRole) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w, err := client.RbacV1().ClusterRoles().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	role, err := client.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for !right(role) {
		e, ok := <-w.ResultChan()
		if !ok {
			t.Fatalf("after a minute the role %s is %+v", name, role.Rules)
		}
		if next, ok := e.Object.(*rbacv1.ClusterRole); ok {
			role = next
		}
	}
}

func hasRule(rule rbacv1.PolicyRule) func(*rbacv1.ClusterRole) bool {
	return func(role *rbacv1.ClusterRole) bool {
		for _, r := range role.Rules {
			if apiequality.Semantic.DeepEqual(r, rule) {
				return true
			}
		}
		return false
	}
}

func TestAggregatedRoles(t *testing.T) {
	client := serveRoles(t)
	before := roleVersions(t, client)
	startAggregate(t, client)
	roles := client.RbacV1().ClusterRoles()
	widgets := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{"example.com"}, Resources: []string{"widgets"}}
	own := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets", Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
		Rules:      []rbacv1.PolicyRule{widgets},
	}
	if _, err := roles.Create(t.Context(), own, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// view is in edit, and edit in admin.
	for _, name := range []string{"view", "edit", "admin"} {
		untilRole(t, client, name, hasRule(widgets))
	}
	// What the API server began with was right: nothing else has changed.
	after := roleVersions(t, client)
	for name, version := range before {
		if changed := after[name] != version; changed != (name == "view" || name == "edit" || name == "admin") {
			t.Errorf("role %s: changed %v", name, changed)
		}
	}

	// What somebody writes into the rules is replaced, and what has lost its label goes.
	if _, err := roles.Patch(t.Context(), "view", types.MergePatchType, []byte(`{"rules":[]}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	untilRole(t, client, "view", hasRule(widgets))
	if _, err := roles.Patch(t.Context(), "widgets", types.MergePatchType, []byte(`{"metadata":{"labels":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"view", "edit", "admin"} {
		untilRole(t, client, name, func(role *rbacv1.ClusterRole) bool { return !hasRule(widgets)(role) })
	}

	// A role of nobody's rules has none.
	none := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "none"}, Rules: []rbacv1.PolicyRule{widgets},
		AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"no": "such"}}}},
	}
	if _, err := roles.Create(t.Context(), none, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	untilRole(t, client, "none", func(role *rbacv1.ClusterRole) bool { return len(role.Rules) == 0 })
}

func roleVersions(t *testing.T, client kubernetes.Interface) map[string]string {
	t.Helper()
	list, err := client.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, role := range list.Items {
		all[role.Name] = role.ResourceVersion
	}
	return all
}

func TestAggregatedRules(t *testing.T) {
	role := func(name, label string, resources ...string) *rbacv1.ClusterRole {
		r := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{label: "yes"}}}
		for _, resource := range resources {
			r.Rules = append(r.Rules, rbacv1.PolicyRule{Verbs: []string{"get"}, Resources: []string{resource}})
		}
		return r
	}
	whole := role("whole", "a", "own")
	whole.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{
		{MatchLabels: map[string]string{"b": "yes"}}, {MatchLabels: map[string]string{"a": "yes"}},
	}}
	rules, err := aggregate.Rules(whole, []*rbacv1.ClusterRole{role("z", "a", "r1", "r2"), role("y", "a", "r2", "r3"), whole, role("x", "b", "r4"), role("w", "c", "r5")})
	var got []string
	for _, r := range rules {
		got = append(got, r.Resources...)
	}
	if want := []string{"r4", "r2", "r3", "r1"}; err != nil || !apiequality.Semantic.DeepEqual(got, want) {
		t.Errorf("rules for %v (%v), want %v", got, err, want)
	}
}
