package apiserver

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apiserverapi "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/authz/bootstrap"
	"monopod.dev/monopod/internal/apiserver/authz/rbac"
	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/apiserver/tokens"
)

// anonymousPaths are all that is answered without credentials: to probes, and to who looks for the server's version.
var anonymousPaths = []string{"/healthz", "/livez", "/readyz", "/version"}

// authentication finds out who makes a request. Wrong credentials are refused everywhere, rather than taken for none.
func authentication(certificates x509.VerifyOptionFunc, tokens authenticator.Request) authenticator.Request {
	known := group.NewAuthenticatedGroupAdder(union.New(newCertificates(x509.NewDynamic(certificates, x509.CommonNameUserConversion)), tokens))
	var conditions []apiserverapi.AnonymousAuthCondition
	for _, path := range anonymousPaths {
		conditions = append(conditions, apiserverapi.AnonymousAuthCondition{Path: path})
	}
	return union.NewFailOnError(known, anonymous.NewAuthenticator(conditions))
}

// authorize makes the roles that every cluster has, and then keeps the policy as roles and bindings say. It needs nothing but the store.
func (r *resources) authorize(ctx context.Context, log *slog.Logger) error {
	var roles, roleBindings, clusterRoles, clusterRoleBindings rbacStorage
	for path, to := range map[string]*rbacStorage{
		"roles": &roles, "rolebindings": &roleBindings, "clusterroles": &clusterRoles, "clusterrolebindings": &clusterRoleBindings,
	} {
		var err error
		if *to, err = resource.Find[rbacStorage](r.storages, rbacv1.SchemeGroupVersion, path); err != nil {
			return err
		}
	}
	begin := time.Now()
	written, err := bootstrap.New(r.rights).Reconcile(ctx, bootstrap.Storages{
		Roles: roles, RoleBindings: roleBindings, ClusterRoles: clusterRoles, ClusterRoleBindings: clusterRoleBindings,
	})
	if err != nil {
		return ignoreEnd(ctx, fmt.Errorf("the cluster's roles: %w", err))
	}
	log.Debug("the cluster's roles are there", "written", written, "after", time.Since(begin))
	r.policy.Run(ctx, rbac.Storages{Roles: roles, RoleBindings: roleBindings, ClusterRoles: clusterRoles, ClusterRoleBindings: clusterRoleBindings})
	return nil
}

// rbacStorage is one of the four that roles and bindings are in.
type rbacStorage interface {
	rest.StandardStorage
	rbac.Storage
}

// bearers authenticates bearer tokens, in the Authorization header and, for browsers, in a WebSocket's subprotocol: those of service accounts, and those
// of a token file, if there is one, which are for the API server alone.
func bearers(accounts *tokens.Tokens, file string) (authenticator.Request, error) {
	known := []authenticator.Token{accounts}
	if file != "" {
		listed, err := tokenfile.NewCSV(file)
		if err != nil {
			return nil, fmt.Errorf("token file %s: %w; its lines are token,user,uid,\"group1,group2\"", file, err)
		}
		known = append(known, authenticator.WrapAudienceAgnosticToken(accounts.Audiences(), listed))
	}
	token := tokenunion.New(known...)
	return union.New(bearertoken.New(token), websocket.NewProtocolAuthenticator(token)), nil
}
