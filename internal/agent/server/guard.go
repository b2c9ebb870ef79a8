package server

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

const (
	reviewTimeout = 10 * time.Second
	// What the API server said is remembered for so long.
	tokenTTL = 2 * time.Minute
	allowTTL = 5 * time.Minute
	denyTTL  = 30 * time.Second
)

// guard lets in who may come in.
type guard struct {
	authn     authenticator.Request
	authz     authorizer.Authorizer
	clientCAs *x509.CertPool
	node      string
}

func newGuard(cfg Config) (*guard, error) {
	pem, err := os.ReadFile(cfg.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("authority of client certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("authority of client certificates: %s holds no certificate", cfg.ClientCA)
	}
	ca, err := dynamiccertificates.NewStaticCAContent("client-ca", pem)
	if err != nil {
		return nil, fmt.Errorf("authority of client certificates %s: %w", cfg.ClientCA, err)
	}
	retry := &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 4}
	authn, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		TokenAccessReviewClient:            cfg.Kube.AuthenticationV1(),
		TokenAccessReviewTimeout:           reviewTimeout,
		WebhookRetryBackoff:                retry,
		CacheTTL:                           tokenTTL,
		ClientCertificateCAContentProvider: ca,
	}.New()
	if err != nil {
		return nil, err
	}
	authz, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: cfg.Kube.AuthorizationV1(),
		AllowCacheTTL:             allowTTL, DenyCacheTTL: denyTTL, WebhookRetryBackoff: retry,
	}.New()
	if err != nil {
		return nil, err
	}
	return &guard{authn: authn, authz: authz, clientCAs: pool, node: cfg.NodeName}, nil
}

// protect asks who a request comes from and whether it may do what it asks for.
func (g *guard) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok, err := g.authn.AuthenticateRequest(r)
		if err != nil || !ok {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		var refused string
		for _, attrs := range g.attributes(info.User, r) {
			decision, reason, err := g.authz.Authorize(r.Context(), attrs)
			if err != nil {
				http.Error(w, "the API server could not be asked for authorization: "+err.Error(), http.StatusInternalServerError)
				return
			}
			if decision == authorizer.DecisionAllow {
				next.ServeHTTP(w, r)
				return
			}
			if refused == "" {
				refused = fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource=%s) %s",
					info.User.GetName(), attrs.GetVerb(), attrs.GetSubresource(), reason)
			}
		}
		http.Error(w, refused, http.StatusForbidden)
	})
}

// attributes are what a request is authorized as: any of them is enough. Where there is a finer subresource (KEP-2862) it comes first; nodes/proxy stands for all
// that has none of a kubelet's three of old: stats, metrics and log.
func (g *guard) attributes(u user.Info, r *http.Request) []authorizer.Attributes {
	verb := map[string]string{
		http.MethodGet: "get", http.MethodHead: "get", http.MethodPost: "create", http.MethodPut: "update",
		http.MethodPatch: "patch", http.MethodDelete: "delete",
	}[r.Method]
	subresources := []string{"proxy"}
	switch first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); first {
	case "exec", "attach", "portForward", "run":
		// A WebSocket begins with GET, and still acts inside the container.
		verb = "create"
	case "healthz", "pods", "configz":
		subresources = []string{first, "proxy"}
	case "stats", "metrics":
		subresources = []string{first}
	}
	var all []authorizer.Attributes
	for _, sub := range subresources {
		all = append(all, authorizer.AttributesRecord{
			User: u, Verb: verb, APIVersion: "v1", Resource: "nodes", Subresource: sub, Name: g.node, ResourceRequest: true,
			Path: r.URL.Path,
		})
	}
	return all
}
