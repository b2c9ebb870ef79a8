package reach

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

// create is the verb of acting inside a container.
const create = "create"

// PermitCreate refuses a request for a subresource whose sender may not create it, whatever the request's own verb is. To
// act inside a container is one thing by every protocol: SPDY begins with POST, which is authorized as create, but a
// WebSocket begins with GET, which is authorized as get before it comes here.
// Upstream: AuthorizePodWebsocketUpgradeCreatePermission.
func PermitCreate(ctx context.Context, a authorizer.UnconditionalAuthorizer) error {
	attributes, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if attributes.GetVerb() == create {
		return nil // that is what it was authorized for
	}
	if a == nil {
		return apierrors.NewInternalError(errors.New("nobody can be asked who may do this"))
	}
	attributes = asCreate{attributes}
	decision, reason, err := a.Authorize(ctx, attributes)
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return apierrors.NewInternalError(fmt.Errorf("authorize %s of %s/%s: %w", create, attributes.GetResource(), attributes.GetSubresource(), err))
	}
	return responsewriters.ForbiddenStatusError(attributes, reason)
}

// asCreate are the attributes of a request as if its verb were create.
type asCreate struct{ authorizer.Attributes }

// GetVerb implements authorizer.Attributes.
func (asCreate) GetVerb() string { return create }

// IsReadOnly implements authorizer.Attributes.
func (asCreate) IsReadOnly() bool { return false }
