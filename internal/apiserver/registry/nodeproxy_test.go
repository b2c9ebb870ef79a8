package registry_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/reach"
	"monopod.dev/monopod/internal/apiserver/registry/node"
)

// anywhere is a road whose end answers with 200.
type anywhere struct{ asked *reach.Backend }

func (a anywhere) ProxyToNode(_ context.Context, _ string, to reach.Backend, _ rest.Responder) (http.Handler, error) {
	*a.asked = to
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), nil
}

// told keeps the error that a client is told.
type told struct{ err error }

func (*told) Object(int, runtime.Object) {}
func (t *told) Error(err error)          { t.err = err }

// The agent takes a GET for an exec when it is upgraded, so that is more than to get something.
func TestUpgradesToNodesNeedCreate(t *testing.T) {
	readers := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetVerb() == "get" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	for name, tc := range map[string]struct {
		verb, upgrade string
		forbidden     bool
	}{
		"get":               {"get", "", false},
		"upgraded get":      {"get", "websocket", true},
		"upgraded create":   {"create", "SPDY/3.1", false},
		"upgraded deletion": {"delete", "SPDY/3.1", true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := genericrequest.WithRequestInfo(t.Context(), &genericrequest.RequestInfo{
				IsResourceRequest: true, Verb: tc.verb, APIVersion: "v1", Resource: "nodes", Subresource: "proxy", Name: "n",
			})
			ctx = genericrequest.WithUser(ctx, &user.DefaultInfo{Name: "joe"})
			var asked reach.Backend
			answer := &told{}
			handler, err := node.NewProxy(anywhere{&asked}, readers).Connect(ctx, "https:n:10250", &corev1.NodeProxyOptions{Path: "/exec/ns/p/c"}, answer)
			if err != nil {
				t.Fatal(err)
			}
			if want := (reach.Backend{Scheme: "https", Port: "10250", Path: "/exec/ns/p/c"}); asked != want {
				t.Errorf("the node is asked for %+v, want %+v", asked, want)
			}
			req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
			if tc.upgrade != "" {
				req.Header.Set("Connection", "Upgrade")
				req.Header.Set("Upgrade", tc.upgrade)
			}
			handler.ServeHTTP(httptest.NewRecorder(), req)
			if apierrors.IsForbidden(answer.err) != tc.forbidden || !tc.forbidden && answer.err != nil {
				t.Errorf("the client is told %v", answer.err)
			}
		})
	}
}
