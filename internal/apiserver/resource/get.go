package resource

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Get reads an object from the storage of its resource. what is how an error calls it, should the storage hold something else.
func Get[T Object](ctx context.Context, from rest.Getter, what, name string, options *metav1.GetOptions) (T, error) {
	var none T
	obj, err := from.Get(ctx, name, options)
	if err != nil {
		return none, err
	}
	typed, ok := obj.(T)
	if !ok {
		return none, apierrors.NewInternalError(fmt.Errorf("%s %s: the store holds a %T", what, name, obj))
	}
	return typed, nil
}
