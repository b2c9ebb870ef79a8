package rbac

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

var (
	_ authorizer.Authorizer   = &Policy{}
	_ authorizer.RuleResolver = &Policy{}
)

// startup bounds how long a request waits for the first reading of the roles, which takes some milliseconds.
const startup = 10 * time.Second

var errNotSynced = errors.New("the roles have not been read from the store yet: try again")

// Authorize implements authorizer.Authorizer. It has no opinion on what no role allows.
func (p *Policy) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	who := a.GetUser()
	if who == nil {
		return authorizer.DecisionNoOpinion, "", nil
	}
	if err := p.wait(ctx); err != nil {
		return authorizer.DecisionNoOpinion, "", err
	}
	// The attributes are asked once, not for each rule.
	asked := request{verb: a.GetVerb(), group: a.GetAPIGroup(), resource: a.GetResource(), subresource: a.GetSubresource(), name: a.GetName()}
	path, isResource := a.GetPath(), a.IsResourceRequest()
	var allowed *grant
	var errs []error
	if asked.subresource != "" {
		asked.resource += "/" + asked.subresource
	}
	p.mu.RLock()
	p.visit(who, a.GetNamespace(), func(g *grant, rules []rbacv1.PolicyRule, err error) bool {
		if err != nil {
			errs = append(errs, err)
			return true
		}
		for i := range rules {
			if isResource && asked.allowedBy(&rules[i]) || !isResource && pathAllowed(&rules[i], asked.verb, path) {
				allowed = g
				return false
			}
		}
		return true
	})
	p.mu.RUnlock()
	switch {
	case allowed != nil:
		return authorizer.DecisionAllow, allowed.why(), nil
	case len(errs) > 0:
		return authorizer.DecisionNoOpinion, "RBAC: " + utilerrors.NewAggregate(errs).Error(), nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// ConditionsAwareAuthorize implements authorizer.Authorizer: there are no conditions.
func (p *Policy) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(p.Authorize(ctx, a))
}

// EvaluateConditions implements authorizer.Authorizer.
func (*Policy) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// wait returns when the roles have been read.
func (p *Policy) wait(ctx context.Context) error {
	if p.isSynced() {
		return nil
	}
	late := time.NewTimer(startup)
	defer late.Stop()
	select {
	case <-p.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-late.C:
		return errNotSynced
	}
}

// request is what somebody wants to do with a resource; resource is the path: "pods/log".
type request struct{ verb, group, resource, subresource, name string }

func (r *request) allowedBy(rule *rbacv1.PolicyRule) bool {
	return anyOf(rule.Verbs, r.verb) && anyOf(rule.APIGroups, r.group) && r.resourceIn(rule.Resources) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, r.name))
}

// resourceIn: "pods", "pods/log", "*" for all with their subresources, "*/scale" for a subresource of all.
func (r *request) resourceIn(resources []string) bool {
	for _, in := range resources {
		if in == rbacv1.ResourceAll || in == r.resource {
			return true
		}
		if sub, ok := strings.CutPrefix(in, "*/"); ok && r.subresource != "" && sub == r.subresource {
			return true
		}
	}
	return false
}

// pathAllowed: a path that ends in * stands for all that begin so.
func pathAllowed(rule *rbacv1.PolicyRule, verb, path string) bool {
	return anyOf(rule.Verbs, verb) && slices.ContainsFunc(rule.NonResourceURLs, func(url string) bool {
		return url == path || strings.HasSuffix(url, "*") && strings.HasPrefix(path, strings.TrimRight(url, "*"))
	})
}

// anyOf: "*" is any value.
func anyOf(values []string, value string) bool {
	for _, v := range values {
		if v == "*" || v == value {
			return true
		}
	}
	return false
}

// RulesFor implements authorizer.RuleResolver.
func (p *Policy) RulesFor(ctx context.Context, who user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	if err := p.wait(ctx); err != nil {
		return nil, nil, true, err
	}
	rules, err := p.rulesFor(who, namespace)
	var resources []authorizer.ResourceRuleInfo
	var paths []authorizer.NonResourceRuleInfo
	for _, r := range rules {
		if len(r.Resources) > 0 {
			resources = append(resources, &authorizer.DefaultResourceRuleInfo{
				Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames,
			})
		}
		if len(r.NonResourceURLs) > 0 {
			paths = append(paths, &authorizer.DefaultNonResourceRuleInfo{Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs})
		}
	}
	return resources, paths, false, err
}

// rulesFor are all rules that somebody has in a namespace. With an error there may be more.
func (p *Policy) rulesFor(who user.Info, namespace string) (all []rbacv1.PolicyRule, err error) {
	var errs []error
	visited := map[*binding]bool{}
	p.mu.RLock()
	defer p.mu.RUnlock()
	p.visit(who, namespace, func(g *grant, rules []rbacv1.PolicyRule, err error) bool {
		if visited[g.binding] {
			return true
		}
		visited[g.binding] = true
		if err != nil {
			errs = append(errs, err)
		}
		all = append(all, rules...)
		return true
	})
	return all, utilerrors.NewAggregate(errs)
}
