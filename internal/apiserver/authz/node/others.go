package node

import (
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// rule allows verbs on resources, which are the same for all nodes, or on paths; one that ends in * is a prefix.
type rule struct {
	verbs, groups, resources, paths []string
}

// rules are those of Kubernetes' role system:node about what is no particular node's, as far as there is such a thing here.
func rules() []rule {
	read := []string{"get", "list", "watch"}
	return []rule{
		{verbs: []string{"get"}, paths: []string{"/healthz", "/livez", "/readyz", "/healthz/*", "/livez/*", "/readyz/*"}},
		{verbs: read, groups: []string{""}, resources: []string{"services"}},
		// What upstream gives its proxy by the role system:node-proxier: an agent has one in its process.
		{verbs: []string{"list", "watch"}, groups: []string{"discovery.k8s.io"}, resources: []string{"endpointslices"}},
		{verbs: []string{"create", "update", "patch"}, groups: []string{"", "events.k8s.io"}, resources: []string{"events"}},
		{verbs: []string{"create"}, groups: []string{"authentication.k8s.io"}, resources: []string{"tokenreviews"}},
		{verbs: []string{"create"}, groups: []string{"authorization.k8s.io"}, resources: []string{"subjectaccessreviews", "localsubjectaccessreviews"}},
		{verbs: []string{"create", "get", "list", "watch"}, groups: []string{"certificates.k8s.io"}, resources: []string{"certificatesigningrequests"}},
		{verbs: read, groups: []string{"certificates.k8s.io"}, resources: []string{"clustertrustbundles"}},
		{verbs: read, groups: []string{"node.k8s.io"}, resources: []string{"runtimeclasses"}},
		{verbs: read, groups: []string{"storage.k8s.io"}, resources: []string{"csidrivers"}},
	}
}

var everyNode = rules()

// others decides on what is no particular node's.
func others(node string, a authorizer.Attributes) answer {
	if slices.ContainsFunc(everyNode, func(r rule) bool { return r.allows(a) }) {
		return yes
	}
	return notAllowed(node)
}

func (r rule) allows(a authorizer.Attributes) bool {
	if !slices.Contains(r.verbs, a.GetVerb()) {
		return false
	}
	if a.IsResourceRequest() {
		return a.GetSubresource() == "" && slices.Contains(r.groups, a.GetAPIGroup()) && slices.Contains(r.resources, a.GetResource())
	}
	return slices.ContainsFunc(r.paths, func(path string) bool {
		prefix, wild := strings.CutSuffix(path, "*")
		return a.GetPath() == path || wild && strings.HasPrefix(a.GetPath(), prefix)
	})
}
