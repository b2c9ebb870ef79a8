package pod

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/reach"
)

// onePod is a store with the pod "p" of one container, on the node "n".
type onePod struct{}

func (onePod) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c"}}},
	}, nil
}

// nowhere is a road that is never taken: a handler is made, and not run.
type nowhere struct{ Agents }

func (nowhere) Agent(context.Context, string) (reach.Agent, error) {
	return reach.Agent{Scheme: "https", Host: "192.0.2.1", Port: "10250"}, nil
}

// To act inside a container takes the verb create, also by a WebSocket, which begins with GET and was let in with get.
func TestStreamsNeedCreate(t *testing.T) {
	users := map[string]authorizer.AuthorizerFunc{
		"creator": func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetVerb() == "create" && a.GetResource() == "pods" && a.GetName() == "p" && a.GetNamespace() == "default" && a.GetUser().GetName() == "joe" {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionDeny, "", nil
		},
		"reader": func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetVerb() == "get" {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "only readers are here", nil
		},
		"broken": func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionNoOpinion, "", errors.New("out of order")
		},
	}
	for subresource, tc := range map[string]struct {
		storage func(connector) rest.Connecter
		options runtime.Object
	}{
		"exec":        {func(c connector) rest.Connecter { return &ExecREST{c} }, &corev1.PodExecOptions{Command: []string{"true"}}},
		"attach":      {func(c connector) rest.Connecter { return &AttachREST{c} }, &corev1.PodAttachOptions{}},
		"portforward": {func(c connector) rest.Connecter { return &PortForwardREST{c} }, &corev1.PodPortForwardOptions{}},
	} {
		connect := func(verb, who string) error {
			ctx := genericrequest.WithRequestInfo(t.Context(), &genericrequest.RequestInfo{
				IsResourceRequest: true, Verb: verb, APIVersion: "v1", Resource: "pods", Subresource: subresource, Namespace: "default", Name: "p",
			})
			ctx = genericrequest.WithUser(ctx, &user.DefaultInfo{Name: "joe"})
			c := connector{locator: locator{pods: onePod{}, agents: nowhere{}}, authorizer: users[who]}
			_, err := tc.storage(c).Connect(ctx, "p", tc.options, nil)
			return err
		}
		if err := connect("get", "creator"); err != nil {
			t.Errorf("%s by GET, of somebody who may create: %v", subresource, err)
		}
		if err := connect("create", "reader"); err != nil {
			t.Errorf("%s by POST, which has been authorized: %v", subresource, err)
		}
		want := `pods "p" is forbidden: User "joe" cannot create resource "pods/` + subresource + `" in API group "" in the namespace "default": only readers are here`
		if err := connect("get", "reader"); !apierrors.IsForbidden(err) || err.Error() != want {
			t.Errorf("%s by GET, of somebody who may get: %v, want %s", subresource, err, want)
		}
		if err := connect("get", "broken"); !apierrors.IsInternalError(err) {
			t.Errorf("%s, when nobody knows who may: %v", subresource, err)
		}
	}
}
