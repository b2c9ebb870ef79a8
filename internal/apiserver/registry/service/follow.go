package service

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"monopod.dev/monopod/internal/apiserver/registry/service/alloc"
	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/wait"
)

// How what is known of addresses follows the store.

// versions are those of the store at which the objects were listed.
type versions struct{ addresses, ranges string }

const (
	// fromCache is the version of whatever the cache has (Kubernetes API concepts: resourceVersion "0").
	fromCache = "0"
	// doubtTime is after which a request whose outcome is not known has had one: the store's own time limits are seconds. An address whose service is not
	// there is given to one that is being made for as long.
	doubtTime      = time.Minute
	settleInterval = 30 * time.Second
	retryInterval  = time.Second
	// makers is how many IPAddresses are made at once for services of a store that has none.
	makers = 16
)

// Start makes the ServiceCIDR of the configured ranges, before the first service, and does what Fill does.
func (a *Allocations) Start(ctx context.Context) error {
	if err := a.cidrs.ensure(ctx); err != nil {
		return err
	}
	return a.Fill(ctx)
}

// Fill notes what the stored services have, once: it returns at once where that is done. Services of a store that has no IPAddresses of theirs get them.
func (a *Allocations) Fill(ctx context.Context) error {
	select {
	case <-a.filled:
		return nil
	default:
	}
	a.filling.Lock()
	defer a.filling.Unlock()
	select {
	case <-a.filled:
		return nil
	default:
	}
	// The caches have what was there before this process began, and no service changes before this.
	at := versions{}
	var err error
	if at.ranges, err = a.cidrs.list(ctx); err != nil {
		return err
	}
	var all []networkingv1.IPAddress
	if all, at.addresses, err = a.listAddresses(ctx, fromCache); err != nil {
		return err
	}
	services, err := a.listServices(ctx, fromCache)
	if err != nil {
		return err
	}
	missing, left := a.compare(services, all)
	if !a.shared {
		// Who has made them is no more, and nothing will come of it.
		for _, obj := range left {
			if err := a.remove(ctx, netip.MustParseAddr(obj.Name), string(obj.UID)); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	} else if len(left) > 0 {
		a.inDoubt()
	}
	begun, makeCtx := errgroup.WithContext(ctx)
	begun.SetLimit(makers)
	for _, m := range missing {
		begun.Go(func() error { return a.give(makeCtx, m) })
	}
	if err := begun.Wait(); err != nil {
		return err
	}
	if len(missing) > 0 {
		a.log.Info("services' addresses have got their IPAddresses", "count", len(missing))
	}
	a.ports.Fill(portOwners(services))
	a.at = at
	close(a.filled)
	return nil
}

// want is an address that a service has, and no IPAddress says so.
type want struct {
	address netip.Addr
	parent  networkingv1.ParentReference
	// instead is an IPAddress that says something else; nil: there is none.
	instead *networkingv1.IPAddress
}

// compare finds the addresses of services that have no IPAddress, and the IPAddresses of services that are not there, or have other addresses. Two services of
// one address, which only a store that was written by others has, it tells of.
func (a *Allocations) compare(services []corev1.Service, all []networkingv1.IPAddress) (missing []want, left []networkingv1.IPAddress) {
	there := map[string]*networkingv1.IPAddress{}
	for i := range all {
		there[all[i].Name] = &all[i]
	}
	had := map[netip.Addr]string{}
	for i := range services {
		s := &services[i]
		for _, ip := range addressesOf(s) {
			parent := parentOf(s)
			owner := ownerOf(&parent)
			if other := had[ip]; other != "" {
				a.log.Error("two services have one address; delete one of them and make it anew", "address", ip, "service", owner, "other", other)
				continue
			}
			had[ip] = owner
			if obj := there[ip.String()]; obj == nil || ownerOf(obj.Spec.ParentRef) != owner {
				missing = append(missing, want{ip, parent, obj})
			}
		}
	}
	for _, obj := range all {
		ip, err := netip.ParseAddr(obj.Name)
		if err == nil && obj.Labels[networkingv1.LabelManagedBy] == manager && had[ip] == "" {
			left = append(left, obj)
		}
	}
	return missing, left
}

// give makes the IPAddress of an address that a service has. One that is another's by its word has that word by mistake, unless the other has the address.
func (a *Allocations) give(ctx context.Context, w want) error {
	if w.instead != nil {
		theirs, err := a.has(ctx, w.instead.Spec.ParentRef, w.address)
		if err != nil {
			return err
		}
		if theirs || w.instead.Labels[networkingv1.LabelManagedBy] != manager {
			a.log.Error("a service has an address that is another's; delete one of them and make it anew", "address", w.address, "service", ownerOf(&w.parent), "other", ownerOf(w.instead.Spec.ParentRef))
			return nil
		}
		if err := a.remove(ctx, w.address, string(w.instead.UID)); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	if still, err := a.has(ctx, &w.parent, w.address); err != nil || !still {
		return err
	}
	if err := a.make(ctx, w.address, w.parent); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make IPAddress %s: %w", w.address, err)
	}
	return nil
}

func (a *Allocations) listServices(ctx context.Context, version string) ([]corev1.Service, error) {
	list, err := objectsOf[*corev1.ServiceList](a.services.List(genericrequest.WithNamespace(ctx, metav1.NamespaceAll), &metainternalversion.ListOptions{ResourceVersion: version}))
	if err != nil {
		return nil, fmt.Errorf("list the services: %w", err)
	}
	return list.Items, nil
}

// listAddresses lists the IPAddresses, and notes them.
func (a *Allocations) listAddresses(ctx context.Context, version string) ([]networkingv1.IPAddress, string, error) {
	list, err := objectsOf[*networkingv1.IPAddressList](a.ips.List(apart(ctx), &metainternalversion.ListOptions{ResourceVersion: version}))
	if err != nil {
		return nil, "", fmt.Errorf("list the IPAddresses: %w", err)
	}
	at, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
	if err != nil {
		return nil, "", fmt.Errorf("list the IPAddresses: %w", err)
	}
	taken := map[netip.Addr]alloc.Holder{}
	for i := range list.Items {
		if ip, err := netip.ParseAddr(list.Items[i].Name); err == nil { // validated
			taken[ip] = holderOf(&list.Items[i])
		}
	}
	a.addresses.Replace(taken, at)
	return list.Items, list.ResourceVersion, nil
}

// Run follows, until ctx ends, what others do with addresses and ranges, and takes back what services were to get that were not stored in the end.
func (a *Allocations) Run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-a.filled:
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.follow(ctx, a.ips, a.at.addresses, func(ctx context.Context) (string, error) {
			_, version, err := a.listAddresses(ctx, fromCache)
			a.inDoubt() // of what was missed nobody knows whether it was right
			return version, err
		}, a.address)
	}()
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		a.follow(ctx, a.cidrs.storage, a.at.ranges, a.cidrs.list, a.cidrs.heard)
	}()
	a.settle(ctx)
	<-ended
	<-followed
}

// follow calls heard with each event of a resource since a version, and list where that is not possible any more.
func (a *Allocations) follow(ctx context.Context, of Storage, version string, list func(context.Context) (string, error), heard func(context.Context, watch.Event) error) {
	for ctx.Err() == nil {
		err := func() error {
			if version == "" {
				at, err := list(ctx)
				if err != nil {
					return err
				}
				version = at
			}
			w, err := of.Watch(apart(ctx), &metainternalversion.ListOptions{ResourceVersion: version})
			version = ""
			if err != nil {
				return err
			}
			defer w.Stop()
			for e := range w.ResultChan() {
				e.Object = resource.Watched(e.Object)
				if err := heard(ctx, e); err != nil {
					return err
				}
			}
			return nil
		}()
		if err == nil || ctx.Err() != nil {
			continue
		}
		a.log.Warn("what others do with services' addresses is not followed; trying again", "error", err)
		_ = wait.For(ctx, retryInterval) // its end is the loop's
	}
}

var errWatch = errors.New("the watch has failed")

// address hears of an IPAddress.
func (a *Allocations) address(ctx context.Context, e watch.Event) error {
	if e.Type == watch.Error {
		return fmt.Errorf("%w: %w", errWatch, apierrors.FromObject(e.Object))
	}
	obj, ok := e.Object.(*networkingv1.IPAddress)
	if !ok || e.Type == watch.Bookmark {
		return nil
	}
	ip, err := netip.ParseAddr(obj.Name)
	if err != nil {
		return nil // validated
	}
	if e.Type != watch.Deleted {
		if a.addresses.Added(ip, holderOf(obj)) && obj.Labels[networkingv1.LabelManagedBy] == manager {
			a.inDoubt() // whether there is such a service
		}
		return nil
	}
	if !a.addresses.Deleted(ip, string(obj.UID)) {
		return nil
	}
	// Somebody else has deleted it, who may not have known of the service that has the address.
	theirs, err := a.has(ctx, obj.Spec.ParentRef, ip)
	if err == nil && theirs {
		a.log.Info("an IPAddress was deleted whose service is there; it is made anew", "address", ip, "service", ownerOf(obj.Spec.ParentRef))
		err = a.make(ctx, ip, *obj.Spec.ParentRef)
		if apierrors.IsAlreadyExists(err) {
			err = nil
		}
	} else {
		a.addresses.Drop(ip, false)
	}
	if err != nil {
		a.log.Warn("an IPAddress that was deleted may be missing", "address", ip, "error", err)
		a.inDoubt()
	}
	return nil
}

// unknown notes that a request ended of which nobody knows whether it has changed a service, and when it may still do so.
func (a *Allocations) unknown() {
	a.inDoubt()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open = time.Now()
}

func (a *Allocations) inDoubt() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.doubt = time.Now()
}

// settle waits for doubts to be old enough, and ends them.
func (a *Allocations) settle(ctx context.Context) {
	ticker := time.NewTicker(settleInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		a.mu.Lock()
		due := !a.doubt.IsZero() && time.Since(a.doubt) > doubtTime
		if due {
			a.doubt = time.Time{}
		}
		a.mu.Unlock()
		if !due {
			continue
		}
		if err := a.Repair(ctx, time.Now().Add(-doubtTime)); err != nil && ctx.Err() == nil {
			a.log.Warn("addresses of services that may be free again stay taken for now", "error", err)
			a.inDoubt()
		}
	}
}

// Repair makes the IPAddresses that are missing, and takes back what no service has and was given before a time.
func (a *Allocations) Repair(ctx context.Context, before time.Time) error {
	clock := a.ports.Clock()
	// In this order: what is given out after the first list is not among what is compared.
	all, _, err := a.listAddresses(ctx, "")
	if err != nil {
		return err
	}
	services, err := a.listServices(ctx, "")
	if err != nil {
		return err
	}
	a.ports.Settle(clock, portOwners(services))
	missing, left := a.compare(services, all)
	var failed []error
	for _, m := range missing {
		failed = append(failed, a.give(ctx, m))
	}
	for _, obj := range left {
		ip := netip.MustParseAddr(obj.Name) // compare has read it
		theirs, err := a.has(ctx, obj.Spec.ParentRef, ip)
		switch {
		case err != nil:
			failed = append(failed, err)
		case theirs:
		case obj.CreationTimestamp.After(before):
			a.inDoubt() // its service may be on its way
		default:
			a.log.Info("an address is free again that no service has", "address", ip, "was", ownerOf(obj.Spec.ParentRef))
			if err := a.remove(ctx, ip, string(obj.UID)); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				failed = append(failed, err)
			}
		}
	}
	return errors.Join(failed...)
}
