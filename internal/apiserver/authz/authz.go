// Package authz decides who may do what: administrators everything, agents what the agent of a node needs, anybody else
// nothing but to learn who they are and what they may.
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

const nodeUserPrefix = "system:node:"

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
	case everybody.allow(a, ""):
		return authorizer.DecisionAllow, "", nil
	}
	node, ok := nodeOf(who)
	if !ok {
		return authorizer.DecisionNoOpinion, fmt.Sprintf("only members of the group %s may do that", user.SystemPrivilegedGroup), nil
	}
	if agents.allow(a, node) {
		return authorizer.DecisionAllow, "agent of node " + node, nil
	}
	return authorizer.DecisionNoOpinion, fmt.Sprintf("the agent of node %q may not do that", node), nil
}

// nodeOf returns the node whose agent the user is: user system:node:NAME in the group system:nodes.
func nodeOf(who user.Info) (string, bool) {
	name, ok := strings.CutPrefix(who.GetName(), nodeUserPrefix)
	return name, ok && name != "" && slices.Contains(who.GetGroups(), user.NodesGroup)
}

// rule allows verbs on resources of a group. Its subresources are named as "pods/status".
type rule struct {
	group     string
	resources []string
	verbs     []string
	// own: only the object that has the agent's node's name, and for a namespaced one only in ownNamespace.
	own          bool
	ownNamespace string
	// paths are non-resource URLs; one that ends in * is a prefix.
	paths []string
}

type rules []rule

var (
	read  = []string{"get", "list", "watch"}
	write = []string{"create", "update", "patch", "delete"}
)

// everybody who has authenticated may discover the API and ask about themselves.
var everybody = rules{
	{verbs: []string{"get"}, paths: []string{"/api", "/api/*", "/apis", "/apis/*", "/openapi/*", "/version", "/version/"}},
	{group: "authentication.k8s.io", resources: []string{"selfsubjectreviews"}, verbs: []string{"create"}},
	{group: "authorization.k8s.io", resources: []string{"selfsubjectaccessreviews"}, verbs: []string{"create"}},
}

// agents of nodes. Reads are not narrowed to what the node's pods refer to: a Monopod has one node.
var agents = rules{
	{verbs: []string{"get"}, paths: []string{"/healthz", "/livez", "/readyz", "/healthz/*", "/livez/*", "/readyz/*"}},
	{resources: []string{"nodes", "pods", "configmaps", "secrets", "namespaces", "services", "persistentvolumeclaims", "persistentvolumes"}, verbs: read},
	{group: "node.k8s.io", resources: []string{"runtimeclasses"}, verbs: read},
	// Creating one's own node is asked without its name (the name is in the body); the strategy of names is the node's own.
	{resources: []string{"nodes"}, verbs: []string{"create"}},
	{resources: []string{"nodes", "nodes/status"}, verbs: []string{"update", "patch", "delete"}, own: true},
	{resources: []string{"pods/status"}, verbs: []string{"update", "patch"}},
	{resources: []string{"pods"}, verbs: []string{"create", "delete"}}, // create: mirrors of static pods
	{resources: []string{"events"}, verbs: []string{"create", "update", "patch"}},
	{group: "events.k8s.io", resources: []string{"events"}, verbs: []string{"create", "update", "patch"}},
	{group: "coordination.k8s.io", resources: []string{"leases"}, verbs: []string{"create"}},
	{group: "coordination.k8s.io", resources: []string{"leases"}, verbs: append([]string{"get"}, write...), own: true, ownNamespace: "kube-node-lease"},
	{group: "authentication.k8s.io", resources: []string{"tokenreviews"}, verbs: []string{"create"}},
	{group: "authorization.k8s.io", resources: []string{"subjectaccessreviews", "localsubjectaccessreviews"}, verbs: []string{"create"}},
}

func (rs rules) allow(a authorizer.Attributes, node string) bool {
	return slices.ContainsFunc(rs, func(r rule) bool { return r.allow(a, node) })
}

func (r rule) allow(a authorizer.Attributes, node string) bool {
	if !slices.Contains(r.verbs, a.GetVerb()) {
		return false
	}
	if !a.IsResourceRequest() {
		return slices.ContainsFunc(r.paths, func(p string) bool {
			prefix, wild := strings.CutSuffix(p, "*")
			return a.GetPath() == p || wild && strings.HasPrefix(a.GetPath(), prefix)
		})
	}
	resource := a.GetResource()
	if sub := a.GetSubresource(); sub != "" {
		resource += "/" + sub
	}
	if r.group != a.GetAPIGroup() || !slices.Contains(r.resources, resource) {
		return false
	}
	return !r.own || a.GetName() == node && a.GetNamespace() == r.ownNamespace
}
