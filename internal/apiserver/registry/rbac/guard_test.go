package rbac

import (
	"context"
	"errors"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
)

// nothing is a policy by which nobody has any right.
type nothing struct{}

func (nothing) Covers(_ user.Info, _ string, rules []rbacv1.PolicyRule) error {
	if len(rules) > 0 {
		return errors.New("not held")
	}
	return nil
}

func (nothing) RulesOf(ref rbacv1.RoleRef, _ string) ([]rbacv1.PolicyRule, error) {
	if ref.Name == "gone" {
		return nil, apierrors.NewNotFound(rbacv1.Resource("roles"), ref.Name)
	}
	return everything, nil
}

func (nothing) Await(string, string) {}

// Who has no rights writes no roles; the garbage collector, which has none either, may still say who owns them.
func TestRefuse(t *testing.T) {
	guard := Guard{Policy: nothing{}, Authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionNoOpinion, "", nil
	})}
	bind := binding(guard, func(b *rbacv1.RoleBinding) *rbacv1.RoleRef { return &b.RoleRef })
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r", ResourceVersion: "1"}, Rules: everything}
	sum := &rbacv1.ClusterRole{AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{}}}}
	owned, labelled := role.DeepCopy(), role.DeepCopy()
	owned.OwnerReferences = []metav1.OwnerReference{{Name: "o"}}
	owned.Finalizers = []string{"example.com/f"}
	labelled.Labels = map[string]string{"a": "b"}
	joe := &user.DefaultInfo{Name: "joe", Groups: []string{"dev"}}
	for name, tc := range map[string]struct {
		check    check
		who      user.Info
		obj, old runtime.Object
		want     metav1.StatusReason
	}{
		"a new role":            {guard.clusterRole, joe, role, nil, metav1.StatusReasonForbidden},
		"an administrator's":    {guard.clusterRole, &user.DefaultInfo{Groups: []string{user.SystemPrivilegedGroup}}, role, nil, ""},
		"one that is made":      {guard.clusterRole, joe, role, &rbacv1.ClusterRole{}, metav1.StatusReasonForbidden},
		"other labels":          {guard.clusterRole, joe, labelled, role, metav1.StatusReasonForbidden},
		"another owner":         {guard.clusterRole, joe, owned, role, ""},
		"no rules":              {guard.clusterRole, joe, &rbacv1.ClusterRole{}, nil, ""},
		"aggregation":           {guard.clusterRole, joe, sum, nil, metav1.StatusReasonForbidden},
		"no more aggregation":   {guard.clusterRole, joe, &rbacv1.ClusterRole{}, sum, metav1.StatusReasonForbidden},
		"a role of a namespace": {guard.role, joe, &rbacv1.Role{Rules: everything}, nil, metav1.StatusReasonForbidden},
		"a binding":             {bind, joe, &rbacv1.RoleBinding{RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "r"}}, nil, metav1.StatusReasonForbidden},
		"a binding of nothing":  {bind, joe, &rbacv1.RoleBinding{RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "gone"}}, nil, metav1.StatusReasonNotFound},
		"nobody":                {guard.clusterRole, nil, role, nil, metav1.StatusReasonInternalError},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			if tc.who != nil {
				ctx = genericrequest.WithUser(ctx, tc.who)
			}
			if err := tc.check.refuse(ctx, "clusterroles", tc.obj, tc.old); apierrors.ReasonForError(err) != tc.want || (err == nil) != (tc.want == "") {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}
