// Package unsupported serves resources of which there are no objects, because they are not supported yet.
//
// They are served all the same because who asks for all objects of the kinds that every cluster has asks for them, and fails where the kinds are not known:
// `kubectl apply --prune`, above all. Whoever makes one is told that it is not supported, and what to do instead. Nothing is stored.
package unsupported

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/resource"
)

// version is the resourceVersion of the lists: nothing ever changes in them. One that is too old once there are objects, so that whoever watches lists anew.
const version = "1"

// Of is a resource of which there are no objects; T is the type that they would have.
type Of[T resource.Object] struct {
	Version                 schema.GroupVersion
	Plural, Singular, Short string
	Namespaced              bool
	// Made and List are an object and a list, both empty.
	Made func() T
	List func() runtime.Object
	// Instead is what whoever makes one is told to do.
	Instead string
	// ReadBy and WrittenBy are the roles that may do so, as far as there is anything.
	ReadBy, WrittenBy resource.Role
}

// Resource is the resource.
func (o Of[T]) Resource() resource.Resource {
	at, storages := o.Version.WithResource(o.Plural), map[string]rest.Storage{o.Plural: &storage[T]{o}}
	return none{resource.PartOf(at, storages, resource.RightsTo(at.Group, at.Resource, o.ReadBy, o.WrittenBy)...)}
}

// none is a resource of which nothing is honoured.
type none struct{ resource.Resource }

// Holes are the fields of which nobody knows whether they are honoured: none, because whoever sets one is refused.
func (none) Holes() []string { return nil }

type storage[T resource.Object] struct{ of Of[T] }

var (
	_ rest.Storage              = &storage[resource.Object]{}
	_ rest.Scoper               = &storage[resource.Object]{}
	_ rest.SingularNameProvider = &storage[resource.Object]{}
	_ rest.ShortNamesProvider   = &storage[resource.Object]{}
	_ rest.Lister               = &storage[resource.Object]{}
	_ rest.Watcher              = &storage[resource.Object]{}
	_ rest.Creater              = &storage[resource.Object]{}
	_ rest.Patcher              = &storage[resource.Object]{}
)

// New implements rest.Storage.
func (n *storage[T]) New() runtime.Object { return n.of.Made() }

// Destroy implements rest.Storage.
func (*storage[T]) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (n *storage[T]) NamespaceScoped() bool { return n.of.Namespaced }

// GetSingularName implements rest.SingularNameProvider.
func (n *storage[T]) GetSingularName() string { return n.of.Singular }

// ShortNames implements rest.ShortNamesProvider.
func (n *storage[T]) ShortNames() []string { return []string{n.of.Short} }

// NewList implements rest.Lister.
func (n *storage[T]) NewList() runtime.Object { return n.of.List() }

// List implements rest.Lister.
func (n *storage[T]) List(context.Context, *metainternalversion.ListOptions) (runtime.Object, error) {
	list := n.of.List()
	of, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	of.SetResourceVersion(version)
	return list, nil
}

// Get implements rest.Getter.
func (n *storage[T]) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	return nil, apierrors.NewNotFound(n.resource(), name)
}

// Watch implements rest.Watcher. Whoever wants what there is first is told that this was all.
func (n *storage[T]) Watch(_ context.Context, o *metainternalversion.ListOptions) (watch.Interface, error) {
	w := watch.NewRaceFreeFake()
	if o != nil && o.SendInitialEvents != nil && *o.SendInitialEvents && o.AllowWatchBookmarks {
		mark := n.of.Made()
		mark.SetResourceVersion(version)
		mark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		w.Action(watch.Bookmark, mark)
	}
	return w, nil
}

func (n *storage[T]) resource() schema.GroupResource {
	return n.of.Version.WithResource(n.of.Plural).GroupResource()
}

// refusal is what whoever makes one is told.
func (n *storage[T]) refusal() error {
	return errors.New("not supported by Monopod yet: " + n.of.Instead)
}

// Create implements rest.Creater.
func (n *storage[T]) Create(_ context.Context, obj runtime.Object, _ rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	of, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	return nil, apierrors.NewForbidden(n.resource(), of.GetName(), n.refusal())
}

// Update implements rest.Updater. Only server-side apply makes objects by it.
func (n *storage[T]) Update(
	_ context.Context, name string, _ rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc, _ rest.ValidateObjectUpdateFunc, create bool, _ *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	if !create {
		return nil, false, apierrors.NewNotFound(n.resource(), name)
	}
	return nil, false, apierrors.NewForbidden(n.resource(), name, n.refusal())
}

// ConvertToTable implements rest.TableConvertor.
func (*storage[T]) ConvertToTable(ctx context.Context, object, o runtime.Object) (*metav1.Table, error) {
	return resource.NewTable([]resource.Column[T]{{Name: "Name"}, {Name: "Age"}}, nil).ConvertToTable(ctx, object, o)
}
