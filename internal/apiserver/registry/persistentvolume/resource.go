// Package persistentvolume serves persistentvolumeclaims and persistentvolumes, of which there are none: they are not supported yet.
//
// They are served all the same because who asks for all objects of the kinds that every cluster has asks for them, and fails where the kinds are not known:
// `kubectl apply --prune`, above all. Whoever makes one is told that it is not supported, and what to do instead. Nothing is stored.
package persistentvolume

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
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

// version is the resourceVersion of the lists: nothing ever changes in them. One that is too old once there are volumes, so that whoever watches lists anew.
const version = "1"

// errUnsupported is what whoever makes one is told.
var errUnsupported = errors.New("not supported by Monopod yet: use a volume of the kind emptyDir or hostPath")

// Resources are both.
func Resources() []resource.Resource {
	made := func(storage rest.Storage, plural string, rights ...resource.Right) resource.Resource {
		return resource.PartOf(corev1.SchemeGroupVersion.WithResource(plural), map[string]rest.Storage{plural: storage}, rights...)
	}
	const claims, volumes = "persistentvolumeclaims", "persistentvolumes"
	return []resource.Resource{
		made(&none[*corev1.PersistentVolumeClaim]{
			qualified: corev1.Resource(claims), singular: "persistentvolumeclaim", short: "pvc", namespaced: true,
			made: func() *corev1.PersistentVolumeClaim { return &corev1.PersistentVolumeClaim{} },
			list: func() runtime.Object {
				return &corev1.PersistentVolumeClaimList{Items: []corev1.PersistentVolumeClaim{}}
			},
		}, claims,
			resource.Right{Role: resource.Viewer, Resource: claims, Verbs: resource.ReadVerbs},
			resource.Right{Role: resource.Editor, Resource: claims, Verbs: resource.WriteVerbs}),
		made(&none[*corev1.PersistentVolume]{
			qualified: corev1.Resource(volumes), singular: "persistentvolume", short: "pv",
			made: func() *corev1.PersistentVolume { return &corev1.PersistentVolume{} },
			list: func() runtime.Object { return &corev1.PersistentVolumeList{Items: []corev1.PersistentVolume{}} },
		}, volumes),
	}
}

// none serves a resource of which there are no objects.
type none[T resource.Object] struct {
	qualified       schema.GroupResource
	singular, short string
	namespaced      bool
	made            func() T
	list            func() runtime.Object
}

var (
	_ rest.Storage              = &none[*corev1.PersistentVolume]{}
	_ rest.Scoper               = &none[*corev1.PersistentVolume]{}
	_ rest.SingularNameProvider = &none[*corev1.PersistentVolume]{}
	_ rest.ShortNamesProvider   = &none[*corev1.PersistentVolume]{}
	_ rest.Lister               = &none[*corev1.PersistentVolume]{}
	_ rest.Watcher              = &none[*corev1.PersistentVolume]{}
	_ rest.Creater              = &none[*corev1.PersistentVolume]{}
	_ rest.Patcher              = &none[*corev1.PersistentVolume]{}
)

// New implements rest.Storage.
func (n *none[T]) New() runtime.Object { return n.made() }

// Destroy implements rest.Storage.
func (*none[T]) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (n *none[T]) NamespaceScoped() bool { return n.namespaced }

// GetSingularName implements rest.SingularNameProvider.
func (n *none[T]) GetSingularName() string { return n.singular }

// ShortNames implements rest.ShortNamesProvider.
func (n *none[T]) ShortNames() []string { return []string{n.short} }

// NewList implements rest.Lister.
func (n *none[T]) NewList() runtime.Object { return n.list() }

// List implements rest.Lister.
func (n *none[T]) List(context.Context, *metainternalversion.ListOptions) (runtime.Object, error) {
	list := n.list()
	of, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	of.SetResourceVersion(version)
	return list, nil
}

// Get implements rest.Getter.
func (n *none[T]) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	return nil, apierrors.NewNotFound(n.qualified, name)
}

// Watch implements rest.Watcher. Whoever wants what there is first is told that this was all.
func (n *none[T]) Watch(_ context.Context, o *metainternalversion.ListOptions) (watch.Interface, error) {
	w := watch.NewRaceFreeFake()
	if o != nil && o.SendInitialEvents != nil && *o.SendInitialEvents && o.AllowWatchBookmarks {
		mark := n.made()
		mark.SetResourceVersion(version)
		mark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		w.Action(watch.Bookmark, mark)
	}
	return w, nil
}

// Create implements rest.Creater.
func (n *none[T]) Create(_ context.Context, obj runtime.Object, _ rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	of, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	return nil, apierrors.NewForbidden(n.qualified, of.GetName(), errUnsupported)
}

// Update implements rest.Updater. Only server-side apply makes objects by it.
func (n *none[T]) Update(
	_ context.Context, name string, _ rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc, _ rest.ValidateObjectUpdateFunc, create bool, _ *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	if !create {
		return nil, false, apierrors.NewNotFound(n.qualified, name)
	}
	return nil, false, apierrors.NewForbidden(n.qualified, name, errUnsupported)
}

// ConvertToTable implements rest.TableConvertor.
func (*none[T]) ConvertToTable(ctx context.Context, object, o runtime.Object) (*metav1.Table, error) {
	return resource.NewTable([]resource.Column[T]{{Name: "Name"}, {Name: "Age"}}, nil).ConvertToTable(ctx, object, o)
}
