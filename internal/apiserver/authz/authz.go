// Package authz decides who may do what. Three are asked in turn, and the first that allows it has decided:
//
//   - members of the group system:masters may do everything, whatever else is stored or lost;
//   - the agent of a node may do what an agent needs, for its own node and the pods of it (package node);
//   - roles and bindings (package rbac) say what everybody else may, and what agents may besides.
//
// What none of them allows is forbidden.
package authz

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"monopod.dev/monopod/internal/apiserver/authz/node"
)

// Roles decides by stored roles.
type Roles interface {
	authorizer.Authorizer
	authorizer.RuleResolver
}

// Authorizer is the chain.
type Authorizer struct {
	authorizer.AuthorizerFunc
	roles Roles
}

var _ Roles = Authorizer{}

// New makes the chain. It has no conditions on the content of requests.
func New(agents authorizer.UnconditionalAuthorizer, roles Roles) Authorizer {
	chain := []authorizer.AuthorizerFunc{masters, agents.Authorize, roles.Authorize}
	return Authorizer{roles: roles, AuthorizerFunc: func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		var reasons []string
		var errs []error
		for _, ask := range chain {
			decision, reason, err := ask(ctx, a)
			if decision != authorizer.DecisionNoOpinion {
				return decision, reason, err
			}
			if reason != "" {
				reasons = append(reasons, reason)
			}
			errs = append(errs, err)
		}
		return authorizer.DecisionNoOpinion, strings.Join(reasons, "; "), errors.Join(errs...)
	}}
}

// RulesFor implements authorizer.RuleResolver: the rules of roles. What an agent may besides depends on objects, and is no list of rules.
func (a Authorizer) RulesFor(ctx context.Context, who user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	resources, paths, incomplete, err := a.roles.RulesFor(ctx, who, namespace)
	if name, ours := node.NameOf(who); ours && name != "" {
		incomplete, err = true, errors.Join(err, fmt.Errorf("what the agent of node %q may do as such is not listed", name))
	}
	return resources, paths, incomplete, err
}

func masters(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if who := a.GetUser(); who != nil && slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
		return authorizer.DecisionAllow, "group " + user.SystemPrivilegedGroup, nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}
