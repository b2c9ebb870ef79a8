package objects

import (
	"context"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/pods"
)

// Kind is the kind of a held object.
type Kind = pods.ReferenceKind

// The kinds.
const (
	ConfigMap = pods.ConfigMap
	Secret    = pods.Secret
	Claim     = pods.Claim
	// Volume is no kind that a pod names: its claims do.
	Volume Kind = "persistentvolumes"
	// TrustBundle and CertificateRequest are none whose objects are the pod's own: whoever has a pod may read the former, and the agent makes the latter.
	TrustBundle        Kind = "clustertrustbundles"
	CertificateRequest Kind = "podcertificaterequests"
)

// kinds says how the objects of each kind are read: those of followed are held, and read as they were last seen; those of asked are read anew each time.
var kinds = map[Kind]kind{
	ConfigMap: followed("ConfigMap", &v1.ConfigMap{}, func(c kubernetes.Interface, namespace string) client[*v1.ConfigMap, *v1.ConfigMapList] {
		return c.CoreV1().ConfigMaps(namespace)
	}),
	Secret: followed("Secret", &v1.Secret{}, func(c kubernetes.Interface, namespace string) client[*v1.Secret, *v1.SecretList] {
		return c.CoreV1().Secrets(namespace)
	}),
	// A node may get the claims that its pods name, and not watch them.
	Claim: asked("PersistentVolumeClaim", func(c kubernetes.Interface, namespace string) getter[*v1.PersistentVolumeClaim] {
		return c.CoreV1().PersistentVolumeClaims(namespace)
	}),
	Volume: asked("PersistentVolume", func(c kubernetes.Interface, _ string) getter[*v1.PersistentVolume] {
		return c.CoreV1().PersistentVolumes()
	}),
	TrustBundle: followed("ClusterTrustBundle", &certificatesv1.ClusterTrustBundle{},
		func(c kubernetes.Interface, _ string) client[*certificatesv1.ClusterTrustBundle, *certificatesv1.ClusterTrustBundleList] {
			return c.CertificatesV1().ClusterTrustBundles()
		}),
	CertificateRequest: followed("PodCertificateRequest", &certificatesv1.PodCertificateRequest{},
		func(c kubernetes.Interface, namespace string) client[*certificatesv1.PodCertificateRequest, *certificatesv1.PodCertificateRequestList] {
			return c.CertificatesV1().PodCertificateRequests(namespace)
		}),
}

// kind is how objects of a kind are read.
type kind struct {
	// name is what messages call one.
	name string
	// empty is one, by which a watch knows the type.
	empty runtime.Object
	get   func(ctx context.Context, c kubernetes.Interface, n Name) (runtime.Object, error)
	// list are the objects that a name's selector finds, and follow lists and watches those, or one object by its name; nil: a node may not.
	list   func(ctx context.Context, c kubernetes.Interface, n Name) ([]runtime.Object, error)
	follow func(c kubernetes.Interface, n Name) cache.ListerWatcher
}

// getter gets objects of a kind; T is their type.
type getter[T runtime.Object] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
}

// client is what client-go's clients of a kind have in common; L is the type of their lists.
type client[T, L runtime.Object] interface {
	getter[T]
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// asked makes a kind whose objects are only got. One that is in no namespace has an empty one.
func asked[T runtime.Object](name string, in func(c kubernetes.Interface, namespace string) getter[T]) kind {
	return kind{name: name, get: func(ctx context.Context, c kubernetes.Interface, n Name) (runtime.Object, error) {
		return in(c, n.Namespace).Get(ctx, n.Name, metav1.GetOptions{})
	}}
}

// followed makes a kind whose objects are watched as well, each by itself, or those that a selector finds.
func followed[T, L runtime.Object](name string, empty T, in func(c kubernetes.Interface, namespace string) client[T, L]) kind {
	made := asked(name, func(c kubernetes.Interface, namespace string) getter[T] { return in(c, namespace) })
	made.empty = empty
	made.list = func(ctx context.Context, c kubernetes.Interface, n Name) ([]runtime.Object, error) {
		list, err := in(c, n.Namespace).List(ctx, metav1.ListOptions{FieldSelector: n.Selector})
		if err != nil {
			return nil, err
		}
		return meta.ExtractList(list)
	}
	made.follow = func(c kubernetes.Interface, n Name) cache.ListerWatcher {
		only := n.Selector
		if only == "" {
			only = fields.OneTermEqualSelector(metav1.ObjectNameField, n.Name).String()
		}
		objects := in(c, n.Namespace)
		return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.FieldSelector = only
				return objects.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.FieldSelector = only
				return objects.Watch(ctx, o)
			},
		}, c)
	}
	return made
}
