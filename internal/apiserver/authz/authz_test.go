package authz_test

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"monopod.dev/monopod/internal/apiserver/authz"
)

func TestAuthorize(t *testing.T) {
	admin := &user.DefaultInfo{Name: "a", Groups: []string{"system:masters"}}
	impostor := &user.DefaultInfo{Name: "system:node:n1", Groups: []string{"dev"}}
	other := &user.DefaultInfo{Name: "joe", Groups: []string{"dev"}}
	for _, tc := range []struct {
		who user.Info
		// what is "VERB /path" or "VERB group resource[/subresource] [namespace/]name"; "core" is the group without name,
		// "-" no name.
		what string
		want bool
	}{
		{admin, "delete core namespaces kube-system", true},
		{admin, "get /metrics", true},

		{impostor, "get core nodes n1", false},
		{other, "get core pods default/web", false},
		{other, "create authentication.k8s.io tokenreviews -", false},
		{other, "create authorization.k8s.io selfsubjectaccessreviews -", false},
		{other, "get core configmaps default/hers", true},
		{other, "get /readyz", false},
		{nil, "get /api", false},
	} {
		name := "nobody"
		if tc.who != nil {
			name = tc.who.GetName()
		}
		t.Run(name+" "+strings.ReplaceAll(tc.what, "/", ":"), func(t *testing.T) {
			decision, reason, err := authz.New(nobody, roles{}).Authorize(t.Context(), attributes(tc.who, tc.what))
			if err != nil || (decision == authorizer.DecisionAllow) != tc.want {
				t.Errorf("decision %v (%s, %v), want allowed=%v", decision, reason, err, tc.want)
			}
		})
	}
}

// nobody is an agent.
var nobody = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionNoOpinion, "", nil
})

// roles let joe read the config map "hers".
type roles struct{ authorizer.AuthorizerFunc }

func (roles) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser() != nil && a.GetUser().GetName() == "joe" && a.GetResource() == "configmaps" && a.GetName() == "hers" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (roles) RulesFor(context.Context, user.Info, string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	return []authorizer.ResourceRuleInfo{&authorizer.DefaultResourceRuleInfo{Verbs: []string{"get"}}}, nil, false, nil
}

func TestRulesOfAgentsAreIncomplete(t *testing.T) {
	for who, want := range map[string]bool{"joe": false, "system:node:n1": true} {
		rules, _, incomplete, err := authz.New(nobody, roles{}).RulesFor(t.Context(), &user.DefaultInfo{Name: who, Groups: []string{"system:nodes"}}, "default")
		if len(rules) != 1 || incomplete != want || (err != nil) != want {
			t.Errorf("%s: %d rules, incomplete %v (%v)", who, len(rules), incomplete, err)
		}
	}
}

func attributes(who user.Info, what string) authorizer.Attributes {
	f := strings.Fields(what)
	a := authorizer.AttributesRecord{User: who, Verb: f[0]}
	if strings.HasPrefix(f[1], "/") {
		a.Path = f[1]
		return a
	}
	a.ResourceRequest = true
	if f[1] != "core" {
		a.APIGroup = f[1]
	}
	a.Resource, a.Subresource, _ = strings.Cut(f[2], "/")
	a.Name = f[3]
	if ns, name, ok := strings.Cut(f[3], "/"); ok {
		a.Namespace, a.Name = ns, name
	}
	if a.Name == "-" {
		a.Name = ""
	}
	return a
}
