// Package ownservice keeps the service kubernetes in the namespace default, its Endpoints and its EndpointSlice as they must be: by them programs in pods
// find the API.
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
)

// Name is the name of the three, in the namespace default.
const Name = "kubernetes"

// Config says what they are to be.
type Config struct {
	Storages resource.Storages
	// ClusterIPs are the service's addresses, the first of each range.
	ClusterIPs []netip.Addr
	// Endpoint is where pods reach the API; the zero value: nowhere, and the service has no endpoints. Port is the API's.
	Endpoint netip.AddrPort
	Port     uint16
	Log      *slog.Logger
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

// Run puts the objects back when somebody has changed or deleted them, until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := k.follow(ctx)
		if err == nil || ctx.Err() != nil {
			continue
		}
		k.cfg.Log.Warn("the service kubernetes is not as it must be; trying again", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
}

// follow looks at each object, and waits until one has changed since.
func (k *Keeper) follow(parent context.Context) error {
	ctx, cancel := context.WithTimeout(genericrequest.WithNamespace(parent, metav1.NamespaceDefault), relookInterval)
	defer cancel()
	changed := make(chan struct{}, 1)
	for _, o := range k.objects() {
		version, err := o.ensure(ctx)
		if err != nil {
			return err
		}
		w, err := o.storage.Watch(ctx, &metainternalversion.ListOptions{ResourceVersion: version, FieldSelector: byName})
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

var byName = fields.OneTermEqualSelector("metadata.name", Name)

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

// Ensure makes the objects as they must be.
func (k *Keeper) Ensure(ctx context.Context) error {
	ctx = genericrequest.WithNamespace(ctx, metav1.NamespaceDefault)
	for _, o := range k.objects() {
		if _, err := o.ensure(ctx); err != nil {
			return err
		}
	}
	return nil
}

// storage is what is needed of a resource.
type storage interface {
	rest.Lister
	rest.Watcher
	rest.CreaterUpdater
	rest.GracefulDeleter
}

// object is one of the three.
type object struct {
	storage storage
	// wanted is the object as it is made, nil: there is to be none. fix makes one that is there as it must be, and reports whether it has changed it;
	// errAnew: it has to be deleted and made anew.
	wanted runtime.Object
	fix    func(is runtime.Object) (changed bool, err error)
}

var errAnew = errors.New("it has to be made anew")

// ensure makes the object as it must be. It returns the version from which changes are to be watched.
func (o object) ensure(ctx context.Context) (version string, err error) {
	list, err := o.storage.List(ctx, &metainternalversion.ListOptions{ResourceVersion: "0", FieldSelector: byName})
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
	_, _, err = o.storage.Update(ctx, Name, rest.DefaultUpdatedObjectInfo(is), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
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
	_, _, err := o.storage.Delete(ctx, Name, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (k *Keeper) objects() []object {
	core, discovery := k.cfg.Storages[corev1.SchemeGroupVersion], k.cfg.Storages[discoveryv1.SchemeGroupVersion]
	return []object{
		k.service(core["services"].(storage)),
		k.endpoints(core["endpoints"].(storage)),
		k.slice(discovery["endpointslices"].(storage)),
	}
}
