package apiserver

import (
	"testing"

	"monopod.dev/monopod/internal/apiserver/registry/node"
	"monopod.dev/monopod/internal/apiserver/registry/rbac"
	"monopod.dev/monopod/internal/apiserver/registry/service"
	"monopod.dev/monopod/internal/apiserver/registry/serviceaccount"
)

// TestEveryFieldHasAVerdict: when it fails after an update of k8s.io/api, decide about the new field, and say so in its resource's Honours.
func TestEveryFieldHasAVerdict(t *testing.T) {
	all := append(declared(), node.Resource(nil, nil), service.Resource(nil, nil), serviceaccount.Resource(serviceaccount.TokenConfig{}))
	for _, r := range append(all, rbac.Resources(rbac.Guard{})...) {
		checked, ok := r.(interface{ Holes() []string })
		if !ok {
			t.Errorf("%s does not tell what it honours", r.Served()[0])
			continue
		}
		for _, hole := range checked.Holes() {
			t.Errorf("%s: %s", r.Served()[0].Resource, hole)
		}
	}
}
