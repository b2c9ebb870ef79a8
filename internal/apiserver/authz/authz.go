// Package authz decides who may do what: administrators everything, anybody else nothing but to learn who they are and what they may. What the agents of
// nodes may is decided in package node.
//
// The rules are the table below and nothing else; there are no stored roles.
package authz

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// New makes the authorizer. It has no state, and no conditions on the content of requests.
func New() authorizer.Authorizer { return authorizer.AuthorizerFunc(authorize) }

func authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	who := a.GetUser()
	if who == nil {
		return authorizer.DecisionNoOpinion, "", nil
	}
	switch {
	case slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup):
		return authorizer.DecisionAllow, "group " + user.SystemPrivilegedGroup, nil
	case everybody.allow(a):
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, fmt.Sprintf("only members of the group %s may do that", user.SystemPrivilegedGroup), nil
}

// rule allows verbs on resources of a group.
type rule struct {
	group     string
	resources []string
	verbs     []string
	// paths are non-resource URLs; one that ends in * is a prefix.
	paths []string
}

type rules []rule

// everybody who has authenticated may discover the API and ask about themselves.
var everybody = rules{
	{verbs: []string{"get"}, paths: []string{"/api", "/api/*", "/apis", "/apis/*", "/openapi/*", "/version", "/version/",
		"/.well-known/openid-configuration", "/openid/v1/jwks"}},
	{group: "authentication.k8s.io", resources: []string{"selfsubjectreviews"}, verbs: []string{"create"}},
	{group: "authorization.k8s.io", resources: []string{"selfsubjectaccessreviews"}, verbs: []string{"create"}},
}

func (rs rules) allow(a authorizer.Attributes) bool {
	return slices.ContainsFunc(rs, func(r rule) bool { return r.allow(a) })
}

func (r rule) allow(a authorizer.Attributes) bool {
	if !slices.Contains(r.verbs, a.GetVerb()) {
		return false
	}
	if !a.IsResourceRequest() {
		return slices.ContainsFunc(r.paths, func(p string) bool {
			prefix, wild := strings.CutSuffix(p, "*")
			return a.GetPath() == p || wild && strings.HasPrefix(a.GetPath(), prefix)
		})
	}
	return a.GetSubresource() == "" && r.group == a.GetAPIGroup() && slices.Contains(r.resources, a.GetResource())
}
