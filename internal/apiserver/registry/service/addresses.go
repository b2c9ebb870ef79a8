package service

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apitypes "k8s.io/apimachinery/pkg/types"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/registry/service/alloc"
	"monopod.dev/monopod/internal/apiserver/resource"
)

// Storage is what is needed of a resource.
type Storage interface {
	rest.Getter
	rest.Lister
	rest.Watcher
	rest.CreaterUpdater
	rest.GracefulDeleter
}

// Storages are those of the objects by which addresses are given out; Status is that of ServiceCIDRs' statuses.
type Storages struct {
	Addresses, Ranges Storage
	Status            rest.Updater
}

// manager is who has made the IPAddresses of services, by their labels; every API server of Kubernetes calls itself so.
const manager = "ipallocator.k8s.io"

// releaseTime bounds what is done for a request that has ended.
const releaseTime = 10 * time.Second

// parentOf is a service as the parent of an IPAddress.
func parentOf(s *corev1.Service) networkingv1.ParentReference {
	return networkingv1.ParentReference{Resource: "services", Namespace: s.Namespace, Name: s.Name}
}

// ownerOf is who has an address, in words.
func ownerOf(p *networkingv1.ParentReference) string {
	if p == nil {
		return ""
	}
	return p.Group + "/" + p.Resource + "/" + p.Namespace + "/" + p.Name
}

// apart is the context of a request as that of an object without a namespace.
func apart(ctx context.Context) context.Context {
	return genericrequest.WithNamespace(ctx, metav1.NamespaceNone)
}

// addressClaim is an address that a request has made an IPAddress for; of a dry run there is none.
type addressClaim struct {
	of      *Allocations
	address netip.Addr
	parent  networkingv1.ParentReference
	dryRun  bool
}

// Commit implements claim.
func (addressClaim) Commit() {}

// Drop implements claim.
func (c addressClaim) Drop() {
	if c.dryRun {
		c.of.addresses.Drop(c.address, false)
		return
	}
	c.of.giveBack(c.address, c.parent)
}

// take gives a service an address that it names.
func (a *Allocations) take(ctx context.Context, t *transaction, s *corev1.Service, address netip.Addr) error {
	freed := a.addresses.Freed()
	err := a.addresses.Take(address)
	if errors.Is(err, alloc.ErrTaken) && a.leaving(ctx, s, address) {
		ctx, cancel := context.WithTimeout(ctx, releaseTime)
		defer cancel()
		for errors.Is(err, alloc.ErrTaken) && ctx.Err() == nil {
			select {
			case <-freed:
			case <-ctx.Done():
			}
			freed = a.addresses.Freed()
			err = a.addresses.Take(address)
		}
	}
	if err != nil {
		return err
	}
	return a.reserve(ctx, t, s, address)
}

// leaving says that an address is about to be free which a service is to have: an earlier service of its name had it, and has gone. Who watches hears of that
// before the address has been given back.
func (a *Allocations) leaving(ctx context.Context, s *corev1.Service, address netip.Addr) bool {
	h, known := a.addresses.HolderOf(address)
	parent := parentOf(s)
	if !known || h.Owner != ownerOf(&parent) {
		return false
	}
	there, err := a.service(ctx, s.Namespace, s.Name)
	return err == nil && there == nil
}

// next gives a service an address of a family. Where somebody else was faster, another one is tried.
func (a *Allocations) next(ctx context.Context, t *transaction, s *corev1.Service, family corev1.IPFamily) (netip.Addr, error) {
	for {
		address, err := a.addresses.Next(family == corev1.IPv4Protocol)
		if err != nil {
			return netip.Addr{}, err
		}
		switch err := a.reserve(ctx, t, s, address); {
		case err == nil:
			return address, nil
		case !errors.Is(err, alloc.ErrTaken):
			return netip.Addr{}, err
		}
	}
}

// reserve makes the IPAddress of a claimed address.
func (a *Allocations) reserve(ctx context.Context, t *transaction, s *corev1.Service, address netip.Addr) error {
	c := addressClaim{a, address, parentOf(s), t.dryRun}
	if t.dryRun {
		t.claims = append(t.claims, c)
		return nil
	}
	switch err := a.make(ctx, address, c.parent); {
	case err == nil:
		t.claims = append(t.claims, c)
		return nil
	case apierrors.IsAlreadyExists(err):
		return alloc.ErrTaken
	default:
		return err
	}
}

// make makes the IPAddress of a claimed address, and gives the claim up where it fails.
func (a *Allocations) make(ctx context.Context, address netip.Addr, parent networkingv1.ParentReference) error {
	family := corev1.IPv4Protocol
	if address.Is6() {
		family = corev1.IPv6Protocol
	}
	obj := &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: address.String(), Labels: map[string]string{
			networkingv1.LabelIPAddressFamily: string(family), networkingv1.LabelManagedBy: manager,
		}},
		Spec: networkingv1.IPAddressSpec{ParentRef: &parent},
	}
	rest.FillObjectMetaSystemFields(obj) // the handlers of requests do this for the others' objects
	made, err := a.ips.Create(apart(ctx), obj, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil {
		a.addresses.Drop(address, apierrors.IsAlreadyExists(err))
		if !nothingStored(err) {
			a.inDoubt()
		}
		return err
	}
	a.addresses.Made(address, holderOf(made.(*networkingv1.IPAddress)))
	return nil
}

func holderOf(obj *networkingv1.IPAddress) alloc.Holder {
	version, _ := strconv.ParseUint(obj.ResourceVersion, 10, 64) // the store's own number
	return alloc.Holder{UID: string(obj.UID), Owner: ownerOf(obj.Spec.ParentRef), Version: version}
}

// giveBack deletes the IPAddress by which an owner has an address. What fails is found later, by repair.
func (a *Allocations) giveBack(address netip.Addr, parent networkingv1.ParentReference) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	ctx = apart(ctx)
	h, known := a.addresses.HolderOf(address)
	if !known || h.Owner != ownerOf(&parent) {
		// Another API server has made it, a moment ago; what is known of it may be of the one before.
		obj, err := resource.Get[*networkingv1.IPAddress](ctx, a.ips, "IPAddress", address.String(), &metav1.GetOptions{})
		if err != nil {
			a.leftBehind(address, err)
			return
		}
		h = holderOf(obj)
	}
	if h.Owner == ownerOf(&parent) {
		a.leftBehind(address, a.remove(ctx, address, h.UID))
	}
}

// leftBehind notes an error by which an address may stay taken that nobody has.
func (a *Allocations) leftBehind(address netip.Addr, err error) {
	if err != nil && !apierrors.IsNotFound(err) {
		a.log.Warn("an address that no service has stays taken for now", "address", address, "error", err)
		a.inDoubt()
	}
}

// remove deletes an IPAddress, and no later one of its name.
func (a *Allocations) remove(ctx context.Context, address netip.Addr, uid string) error {
	a.addresses.Leaving(uid)
	is := apitypes.UID(uid)
	_, _, err := a.ips.Delete(apart(ctx), address.String(), rest.ValidateAllObjectFunc, &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &is}})
	a.addresses.Left(address, uid, err == nil || apierrors.IsNotFound(err))
	return err
}

// service reads a service as it is in the store; nil: there is none.
func (a *Allocations) service(ctx context.Context, namespace, name string) (*corev1.Service, error) {
	s, err := resource.Get[*corev1.Service](genericrequest.WithNamespace(ctx, namespace), a.services, "service", name, &metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return s, err
}

// has says whether the parent of an IPAddress is a service that has its address.
func (a *Allocations) has(ctx context.Context, parent *networkingv1.ParentReference, address netip.Addr) (bool, error) {
	if parent == nil || parent.Group != "" || parent.Resource != "services" {
		return false, nil
	}
	s, err := a.service(ctx, parent.Namespace, parent.Name)
	if s == nil || err != nil {
		return false, err
	}
	for _, ip := range addressesOf(s) {
		if ip == address {
			return true, nil
		}
	}
	return false, nil
}

func objectsOf[T runtime.Object](obj runtime.Object, err error) (T, error) {
	typed, ok := obj.(T)
	if err == nil && !ok {
		err = fmt.Errorf("the store holds a %T", obj)
	}
	return typed, err
}
