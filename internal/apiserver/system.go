package apiserver

import (
	"context"
	"fmt"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/registry/namespace"
	"monopod.dev/monopod/internal/apiserver/registry/priorityclass"
)

// makeSystem makes the objects that every cluster has, where they are missing.
func (s *Server) makeSystem(ctx context.Context) error {
	if err := namespace.Create(ctx, s.namespaces(), namespace.System()); err != nil {
		return err
	}
	classes := s.storages[schedulingv1.SchemeGroupVersion]["priorityclasses"].(rest.Creater)
	ctx = genericrequest.WithNamespace(ctx, "")
	for _, class := range priorityclass.System() {
		// The handlers of requests do this for the others' objects.
		rest.FillObjectMetaSystemFields(class)
		if _, err := classes.Create(ctx, class, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make PriorityClass %q: %w", class.Name, err)
		}
	}
	if err := s.services.EnsureRange(ctx); err != nil {
		return err
	}
	if err := s.services.Fill(ctx); err != nil {
		return err
	}
	return s.own().Ensure(ctx)
}
