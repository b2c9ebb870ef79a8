package apitest

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/controllers/catalog"
)

// StartIn starts an API server that has a namespace, with the controllers that let pods into it.
func StartIn(t testing.TB, namespace string) *API {
	t.Helper()
	a := Start(t)
	if _, err := a.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	a.Control(catalog.ServiceAccount, catalog.RootCA)
	a.AwaitAccount(namespace)
	return a
}

// Getter and Patcher are client-go's clients of objects of a type in a namespace, as far as they are needed.
type (
	Getter[T any] interface {
		Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
	}
	Patcher[T any] interface {
		Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (T, error)
	}
)

// Patch changes an object by a strategic merge patch.
func Patch[T any](a *API, objects Patcher[T], name, format string, args ...any) {
	a.Helper()
	if _, err := objects.Patch(a.Context(), name, types.StrategicMergePatchType, fmt.Appendf(nil, format, args...), metav1.PatchOptions{}); err != nil {
		a.Fatal(err)
	}
}

// Become waits until an object of a resource in a namespace is as wanted, and returns it. It asks for the object now and whenever one of the resource has
// changed. otherwise says how it is where that does not come to be.
func Become[T any](
	a *API, gvr schema.GroupVersionResource, namespace string, objects Getter[T], name, what string, wanted func(T) bool, otherwise func(T) string,
) (last T) {
	a.Helper()
	a.AwaitChange(func(ctx context.Context) bool {
		object, err := objects.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			a.Fatal(err)
		}
		last = object
		return wanted(object)
	}, func() string {
		return fmt.Sprintf("%s %s/%s does not become %s: %s", gvr.Resource, namespace, name, what, otherwise(last))
	}, gvr, namespace)
	return last
}
