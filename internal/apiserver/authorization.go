package apiserver

import (
	"context"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apiserverapi "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/authz/bootstrap"
	"monopod.dev/monopod/internal/apiserver/authz/rbac"
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
func (s *Server) authorize(ctx context.Context) error {
	storage := func(path string) rest.StandardStorage {
		return s.storages[rbacv1.SchemeGroupVersion][path].(rest.StandardStorage)
	}
	begin := time.Now()
	written, err := bootstrap.New(s.rights).Reconcile(ctx, bootstrap.Storages{
		Roles: storage("roles"), RoleBindings: storage("rolebindings"),
		ClusterRoles: storage("clusterroles"), ClusterRoleBindings: storage("clusterrolebindings"),
	})
	if err != nil {
		return ignoreEnd(ctx, fmt.Errorf("the cluster's roles: %w", err))
	}
	s.cfg.Log.Debug("the cluster's roles are there", "written", written, "after", time.Since(begin))
	followed := func(path string) rbac.Storage { return storage(path).(rbac.Storage) }
	s.policy.Run(ctx, rbac.Storages{
		Roles: followed("roles"), RoleBindings: followed("rolebindings"),
		ClusterRoles: followed("clusterroles"), ClusterRoleBindings: followed("clusterrolebindings"),
	})
	return nil
}
