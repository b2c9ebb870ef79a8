// Package review serves the reviews: questions to the API server's authenticators and authorizer in the form of objects
// that are answered and never stored. An agent asks them about the callers of its own HTTPS API.
//
//	authentication.k8s.io/v1   tokenreviews           whose token is it?
//	                           selfsubjectreviews     who am I?
//	authorization.k8s.io/v1    subjectaccessreviews   may they?
//	                           localsubjectaccessreviews (the same within a namespace)
//	                           selfsubjectaccessreviews  may I?
//	                           selfsubjectrulesreviews   what may I?
package review

import (
	"context"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/resource"
)

// resources are reviews by their names, a resource each.
func resources(gv schema.GroupVersion, storages map[string]rest.Storage) (all []resource.Resource) {
	for name, storage := range storages {
		all = append(all, resource.PartOf(gv.WithResource(name), map[string]rest.Storage{name: storage}, rights[name]...))
	}
	return all
}

// rights: who gives rights in a namespace may ask for others there.
var rights = map[string][]resource.Right{
	"localsubjectaccessreviews": {{Role: resource.Admin, Group: authorizationv1.GroupName, Resource: "localsubjectaccessreviews", Verbs: []string{"create"}}},
}

// kind is what all reviews have in common: they can be created, and that is all.
type kind[T any] struct {
	singular   string
	namespaced bool
	// answer fills in the status of a review that has been validated. It may return an API error instead.
	answer func(ctx context.Context, review *T) error
}

// object is T's pointer as an API object.
type object interface {
	runtime.Object
	metav1.Object
}

// storage makes the rest.Storage of a review.
func storage[T any, P interface {
	*T
	object
}](k kind[T]) rest.Storage {
	return &creator[T, P]{k}
}

type creator[T any, P interface {
	*T
	object
}] struct{ kind[T] }

// New implements rest.Storage.
func (*creator[T, P]) New() runtime.Object { return P(new(T)) }

// Destroy implements rest.Storage.
func (*creator[T, P]) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (c *creator[T, P]) NamespaceScoped() bool { return c.namespaced }

// GetSingularName implements rest.SingularNameProvider.
func (c *creator[T, P]) GetSingularName() string { return strings.ToLower(c.singular) }

// Create implements rest.Creater.
func (c *creator[T, P]) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	review := obj.(P)
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	if err := c.answer(ctx, (*T)(review)); err != nil {
		return nil, err
	}
	return review, nil
}
