// Package ownservice keeps the services that lead to the node itself, with their Endpoints and EndpointSlices, as they must be: the service kubernetes in the
// namespace default, by which programs in pods find the API, and kube-dns in kube-system, by which they and others find the cluster's DNS.
package ownservice

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/wait"
)

// Name is the name of the service of the API and its endpoints, in the namespace default; DNSName that of those of the cluster's DNS, in kube-system.
const (
	Name    = "kubernetes"
	DNSName = "kube-dns"
)

// Config says what they are to be.
type Config struct {
	Storages resource.Storages
	// ClusterIPs are the service's addresses, the first of each range.
	ClusterIPs []netip.Addr
	// DNS are the addresses of the cluster's DNS, which is served at them; none: the node serves none, and the service kube-dns that it made goes.
	DNS []netip.Addr
	// Endpoint is where pods reach the API; the zero value: nowhere, and the service has no endpoints. Port is the API's.
	Endpoint netip.AddrPort
	Port     uint16
	// Shared: other API servers keep the same objects at other times, so that Ensure leaves what is there as it is.
	Shared bool
	Log    *slog.Logger
}

// Keeper keeps them.
type Keeper struct{ cfg Config }

// New makes a Keeper; it does nothing before Ensure or Run.
func New(cfg Config) *Keeper { return &Keeper{cfg} }

const (
	// relookInterval bounds how long an event that was missed goes unnoticed, retryInterval is between two attempts of something that fails.
	relookInterval = 10 * time.Minute
	retryInterval  = time.Second
)

// Run puts the objects back when somebody has changed or deleted them, until ctx ends, as long as may says yes.
func (k *Keeper) Run(ctx context.Context, may func() bool) {
	for ctx.Err() == nil {
		if !may() { // ctx is about to end
			<-ctx.Done()
			return
		}
		err := k.follow(ctx)
		if err == nil || ctx.Err() != nil {
			continue
		}
		k.cfg.Log.Warn("a service of the node's own is not as it must be; trying again", "error", err)
		_ = wait.For(ctx, retryInterval) // its end is the loop's
	}
}

// follow looks at each object, and waits until one has changed since.
func (k *Keeper) follow(parent context.Context) error {
	ctx, cancel := context.WithTimeout(parent, relookInterval)
	defer cancel()
	changed := make(chan struct{}, 1)
	for _, o := range k.objects() {
		version, err := k.ensure(ctx, o)
		if err != nil {
			return err
		}
		w, err := o.storage.Watch(o.inside(ctx), &metainternalversion.ListOptions{ResourceVersion: version, FieldSelector: o.byName()})
		if err != nil {
			return err
		}
		defer w.Stop()
		go tell(w, changed)
	}
	select {
	case <-ctx.Done():
	case <-changed:
	}
	return nil
}

// tell tells of the first event of a watch, and ends with it.
func tell(w watch.Interface, changed chan<- struct{}) {
	for e := range w.ResultChan() {
		if e.Type == watch.Bookmark {
			continue
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}

// Ensure makes the objects as they must be without which the API is not whole. Run makes the others, for which nobody waits.
func (k *Keeper) Ensure(ctx context.Context) error {
	for _, o := range k.objects() {
		if o.optional || k.cfg.Shared && o.wanted == nil {
			continue
		}
		if k.cfg.Shared {
			o.fix = func(runtime.Object) (bool, error) { return false, nil }
		}
		if _, err := k.ensure(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// ensure makes an object as it must be, or says why it is not: where another service has the address or the name, that one's maker has the say.
func (k *Keeper) ensure(ctx context.Context, o object) (version string, err error) {
	if o.belongsTo != nil && o.belongsTo.isTheirs(o.inside(ctx)) {
		o.wanted = nil
	}
	version, err = o.ensure(o.inside(ctx))
	if o.optional && apierrors.IsInvalid(err) {
		k.cfg.Log.Warn("a service of the node's own cannot be made", "namespace", o.namespace, "name", o.name, "error", err)
		return version, nil
	}
	return version, err
}

// storage is what is needed of a resource.
type storage interface {
	rest.Lister
	rest.Watcher
	rest.CreaterUpdater
	rest.GracefulDeleter
}

// object is one of those that are kept.
type object struct {
	storage         storage
	namespace, name string
	// wanted is the object as it is made, nil: there is to be none. fix makes one that is there as it must be, and reports whether it has changed it;
	// errAnew: it has to be deleted and made anew.
	wanted runtime.Object
	fix    func(is runtime.Object) (changed bool, err error)
	// theirs says of one that is there that somebody else made it, and keeps it; nil: nobody else does. optional: the node works without it.
	theirs   func(is runtime.Object) bool
	optional bool
	// belongsTo is the object without which, or beside somebody else's of its name, there is to be none; nil: it stands for itself.
	belongsTo *object
}

var errAnew = errors.New("it has to be made anew")

func (o object) inside(ctx context.Context) context.Context {
	return genericrequest.WithNamespace(ctx, o.namespace)
}

func (o object) byName() fields.Selector { return fields.OneTermEqualSelector("metadata.name", o.name) }

// isTheirs says that somebody else has made an object of this name. Who cannot be asked has made none: it is looked again.
func (o object) isTheirs(ctx context.Context) bool {
	list, err := o.storage.List(ctx, &metainternalversion.ListOptions{ResourceVersion: "0", FieldSelector: o.byName()})
	if err != nil {
		return false
	}
	found, err := meta.ExtractList(list)
	return err == nil && len(found) > 0 && o.theirs(found[0])
}

// ensure makes the object as it must be. It returns the version from which changes are to be watched.
func (o object) ensure(ctx context.Context) (version string, err error) {
	list, err := o.storage.List(ctx, &metainternalversion.ListOptions{ResourceVersion: "0", FieldSelector: o.byName()})
	if err != nil {
		return "", err
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return "", err
	}
	found, err := meta.ExtractList(list)
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		if o.wanted == nil {
			return m.GetResourceVersion(), nil
		}
		return m.GetResourceVersion(), o.create(ctx)
	}
	if o.theirs != nil && o.theirs(found[0]) {
		return m.GetResourceVersion(), nil
	}
	if o.wanted == nil {
		return m.GetResourceVersion(), o.remove(ctx)
	}
	is := found[0].DeepCopyObject()
	changed, err := o.fix(is)
	switch {
	case errors.Is(err, errAnew):
		if err := o.remove(ctx); err != nil {
			return "", err
		}
		return m.GetResourceVersion(), o.create(ctx)
	case err != nil || !changed:
		return m.GetResourceVersion(), err
	}
	_, _, err = o.storage.Update(ctx, o.name, rest.DefaultUpdatedObjectInfo(is), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	return m.GetResourceVersion(), err
}

func (o object) create(ctx context.Context) error {
	obj := o.wanted.DeepCopyObject()
	made, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	rest.FillObjectMetaSystemFields(made) // the handlers of requests do this for the others' objects
	_, err = o.storage.Create(ctx, obj, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil // the cache had not heard of it yet; the watch tells of it
	}
	return err
}

func (o object) remove(ctx context.Context) error {
	_, _, err := o.storage.Delete(ctx, o.name, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (k *Keeper) objects() []object {
	core, discovery := k.cfg.Storages[corev1.SchemeGroupVersion], k.cfg.Storages[discoveryv1.SchemeGroupVersion]
	services, endpoints, slices := core["services"].(storage), core["endpoints"].(storage), discovery["endpointslices"].(storage)
	return append([]object{k.service(services), k.endpoints(endpoints), k.slice(slices)}, k.dns(services, endpoints, slices)...)
}
