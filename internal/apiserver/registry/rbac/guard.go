package rbac

import (
	"context"
	"errors"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"monopod.dev/monopod/internal/apiserver/resource"
)

// Policy is what is in force of the resources of this package.
type Policy interface {
	// Covers is nil when who has all the rights of rules in a namespace, by cluster roles everywhere ("" is only these), and else tells those that are
	// missing.
	Covers(who user.Info, namespace string, rules []rbacv1.PolicyRule) error
	// RulesOf are the rules of the role that a binding in a namespace names; "" is a cluster role binding. It is a NotFound where there is none.
	RulesOf(ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error)
	// Await returns when a version of an object of a resource, or a later one, is in force, or when that takes too long.
	Await(resource, resourceVersion string)
}

// Guard says who may write which roles and bindings.
type Guard struct {
	// Authorizer decides about the verbs escalate and bind.
	Authorizer authorizer.UnconditionalAuthorizer
	Policy     Policy
}

// check tells why the caller of a request may not write an object in the place of old, which is empty for a new one. The error is for people: it becomes
// the reason of the refusal, unless it is an API error already.
type check func(ctx context.Context, who user.Info, obj, old runtime.Object) error

// refuse makes the answer to whoever may not write obj; nil: they may.
func (c check) refuse(ctx context.Context, resource string, obj, old runtime.Object) error {
	who, ok := genericrequest.UserFrom(ctx)
	if !ok {
		return apierrors.NewInternalError(errors.New("the request has no user"))
	}
	if slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) || onlyCollected(obj, old) {
		return nil
	}
	err := c(ctx, who, obj, old)
	if err == nil || apierrors.ReasonForError(err) != "" {
		return err
	}
	name := ""
	if named, ok := obj.(interface{ GetName() string }); ok {
		name = named.GetName()
	}
	return apierrors.NewForbidden(rbacv1.Resource(resource), name, err)
}

// onlyCollected: all that changes is who owns the object and who waits for its deletion. The garbage collector may do that without the rights that are
// in the object.
func onlyCollected(obj, old runtime.Object) bool {
	if old == nil {
		return false
	}
	changed, ok := obj.DeepCopyObject().(resource.Object)
	was, ok2 := old.(resource.Object)
	if !ok || !ok2 {
		return false
	}
	changed.SetOwnerReferences(was.GetOwnerReferences())
	changed.SetFinalizers(was.GetFinalizers())
	changed.SetManagedFields(was.GetManagedFields())
	return apiequality.Semantic.DeepEqual(changed, was)
}

func (g Guard) role(ctx context.Context, who user.Info, obj, _ runtime.Object) error {
	if g.mayEscalate(ctx, who) {
		return nil
	}
	return g.Policy.Covers(who, genericrequest.NamespaceValue(ctx), obj.(*rbacv1.Role).Rules)
}

// everything are the rights of an administrator.
var everything = []rbacv1.PolicyRule{
	{Verbs: []string{rbacv1.VerbAll}, APIGroups: []string{rbacv1.APIGroupAll}, Resources: []string{rbacv1.ResourceAll}},
	{Verbs: []string{rbacv1.VerbAll}, NonResourceURLs: []string{rbacv1.NonResourceAll}},
}

func (g Guard) clusterRole(ctx context.Context, who user.Info, obj, old runtime.Object) error {
	if g.mayEscalate(ctx, who) {
		return nil
	}
	role := obj.(*rbacv1.ClusterRole)
	if err := g.Policy.Covers(who, "", role.Rules); err != nil {
		return err
	}
	was, _ := old.(*rbacv1.ClusterRole)
	if !aggregates(role) && !aggregates(was) {
		return nil
	}
	// Whatever labels others give their roles will be in it, or would have been.
	if err := g.Policy.Covers(who, "", everything); err != nil {
		return errors.New("must have cluster-admin privileges to use the aggregationRule")
	}
	return nil
}

func aggregates(role *rbacv1.ClusterRole) bool {
	return role != nil && role.AggregationRule != nil && len(role.AggregationRule.ClusterRoleSelectors) > 0
}

// binding checks who writes bindings, whose role is where ref says.
func binding[T runtime.Object](g Guard, ref func(T) *rbacv1.RoleRef) check {
	return func(ctx context.Context, who user.Info, obj, _ runtime.Object) error {
		// The object may not have its namespace yet.
		role, namespace := *ref(obj.(T)), genericrequest.NamespaceValue(ctx)
		if g.mayBind(ctx, who, role, namespace) {
			return nil
		}
		rules, err := g.Policy.RulesOf(role, namespace)
		if err != nil {
			return err
		}
		return g.Policy.Covers(who, namespace, rules)
	}
}

// mayEscalate asks for the verb escalate on the role of a request.
func (g Guard) mayEscalate(ctx context.Context, who user.Info) bool {
	info, ok := genericrequest.RequestInfoFrom(ctx)
	if !ok || !info.IsResourceRequest || info.APIGroup != rbacv1.GroupName {
		return false
	}
	return g.allowed(ctx, authorizer.AttributesRecord{User: who, Verb: "escalate", Resource: info.Resource, Name: info.Name, Namespace: info.Namespace})
}

// mayBind asks for the verb bind on the role that a binding in a namespace names.
func (g Guard) mayBind(ctx context.Context, who user.Info, role rbacv1.RoleRef, namespace string) bool {
	resources := map[string]string{"Role": "roles", "ClusterRole": "clusterroles"}
	named := resources[role.Kind]
	if named == "" || role.APIGroup != rbacv1.GroupName {
		return false
	}
	return g.allowed(ctx, authorizer.AttributesRecord{User: who, Verb: "bind", Resource: named, Name: role.Name, Namespace: namespace})
}

// allowed asks the authorizer; one that cannot decide has not allowed it.
func (g Guard) allowed(ctx context.Context, a authorizer.AttributesRecord) bool {
	a.APIGroup, a.APIVersion, a.ResourceRequest = rbacv1.GroupName, "*", true
	decision, _, _ := g.Authorizer.Authorize(ctx, a)
	return decision == authorizer.DecisionAllow
}
