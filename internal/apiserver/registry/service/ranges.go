package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/registry/service/alloc"
)

// DefaultRange is the name of the ServiceCIDR that is made of the configuration.
const DefaultRange = "kubernetes"

// Ranges are those of services' addresses by the configuration.
type Ranges struct {
	// families are in the order of the configuration: the first is that of services that name none.
	families []corev1.IPFamily
	of       map[corev1.IPFamily]netip.Prefix
	// first is the address of the service kubernetes, by family.
	first map[corev1.IPFamily]netip.Addr
}

// NewRanges reads ranges, at least one, and at most one of each family. The first is the family of services that name none.
func NewRanges(all []netip.Prefix) (Ranges, error) {
	r := Ranges{of: map[corev1.IPFamily]netip.Prefix{}, first: map[corev1.IPFamily]netip.Addr{}}
	for _, prefix := range all {
		values, err := alloc.Addresses(prefix)
		if err != nil {
			return Ranges{}, err
		}
		family := familyOf(prefix.Addr().String())
		if r.of[family].IsValid() {
			return Ranges{}, fmt.Errorf("two ranges of services' addresses are of the family %s: use one of each", family)
		}
		r.families = append(r.families, family)
		r.of[family], r.first[family] = prefix, values.At(0)
	}
	if len(r.families) == 0 {
		return Ranges{}, errors.New("services have no range of addresses: name one, such as 10.43.0.0/16")
	}
	return r, nil
}

// First are the first addresses of the ranges, those of the service kubernetes.
func (r Ranges) First() (all []netip.Addr) {
	for _, f := range r.families {
		all = append(all, r.first[f])
	}
	return all
}

// cidrs are the ServiceCIDRs, of which the configuration's is one, and has a book know those that can be used.
type cidrs struct {
	configured Ranges
	storage    Storage
	status     rest.Updater
	book       *alloc.Book
	log        *slog.Logger
	// listing has list once at a time.
	listing sync.Mutex
}

// ensure makes the ServiceCIDR of the configured ranges, before the first service. One of other ranges is that of an earlier configuration: it is replaced,
// and the addresses of services stay what they are.
func (c *cidrs) ensure(ctx context.Context) error {
	if err := c.make(ctx); err != nil {
		return err
	}
	_, err := c.list(ctx)
	return err
}

func (c *cidrs) make(ctx context.Context) error {
	ctx = apart(ctx)
	var wanted []string
	for _, f := range c.configured.families {
		wanted = append(wanted, c.configured.of[f].String())
	}
	ranges := c.storage
	is, err := objectsOf[*networkingv1.ServiceCIDR](ranges.Get(ctx, DefaultRange, &metav1.GetOptions{}))
	switch {
	case err == nil && slices.Equal(is.Spec.CIDRs, wanted):
		return c.markReady(ctx, is)
	case err == nil:
		c.log.Info("services get their addresses out of another range", "from", is.Spec.CIDRs, "to", wanted)
		is = is.DeepCopy()
		is.Finalizers = nil
		if _, _, err := ranges.Update(ctx, DefaultRange, rest.DefaultUpdatedObjectInfo(is), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete ServiceCIDR %s: %w", DefaultRange, err)
		}
		if _, _, err := ranges.Delete(ctx, DefaultRange, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete ServiceCIDR %s: %w", DefaultRange, err)
		}
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read ServiceCIDR %s: %w", DefaultRange, err)
	}
	obj := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: DefaultRange}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: wanted}}
	rest.FillObjectMetaSystemFields(obj)
	made, err := objectsOf[*networkingv1.ServiceCIDR](ranges.Create(ctx, obj, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}))
	if apierrors.IsAlreadyExists(err) {
		return nil // another API server was faster
	}
	if err != nil {
		return fmt.Errorf("make ServiceCIDR %s: %w", DefaultRange, err)
	}
	return c.markReady(ctx, made)
}

// markReady says of the range of the configuration that it can be used: nobody has to look at it first. Of others a controller says so.
func (c *cidrs) markReady(ctx context.Context, of *networkingv1.ServiceCIDR) error {
	if of.DeletionTimestamp != nil || apimeta.FindStatusCondition(of.Status.Conditions, networkingv1.ServiceCIDRConditionReady) != nil {
		return nil
	}
	of = of.DeepCopy()
	apimeta.SetStatusCondition(&of.Status.Conditions, metav1.Condition{
		Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue, Reason: "Configured", Message: "Services get addresses of it",
	})
	_, _, err := c.status.Update(ctx, of.Name, rest.DefaultUpdatedObjectInfo(of), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // somebody else has just said something of it
	}
	return err
}

// list lists the ServiceCIDRs as they are in the store, and notes those that can be used, the oldest first.
func (c *cidrs) list(ctx context.Context) (version string, err error) {
	c.listing.Lock()
	defer c.listing.Unlock()
	list, err := objectsOf[*networkingv1.ServiceCIDRList](c.storage.List(apart(ctx), &metainternalversion.ListOptions{}))
	if err != nil {
		return "", fmt.Errorf("list the ServiceCIDRs: %w", err)
	}
	slices.SortFunc(list.Items, func(x, y networkingv1.ServiceCIDR) int {
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(x.Name, y.Name))
	})
	var ranges []alloc.Range
	for _, one := range list.Items {
		if one.DeletionTimestamp != nil || !apimeta.IsStatusConditionTrue(one.Status.Conditions, networkingv1.ServiceCIDRConditionReady) {
			continue
		}
		for _, cidr := range one.Spec.CIDRs {
			if p, err := netip.ParsePrefix(cidr); err == nil { // validated
				ranges = append(ranges, alloc.NewRange(one.Name, p))
			}
		}
	}
	c.book.SetRanges(ranges)
	return list.ResourceVersion, nil
}

// heard hears of a ServiceCIDR. There are few: all are looked at.
func (c *cidrs) heard(ctx context.Context, e watch.Event) error {
	switch e.Type {
	case watch.Error:
		return fmt.Errorf("%w: %w", errWatch, apierrors.FromObject(e.Object))
	case watch.Bookmark:
		return nil
	}
	if _, err := c.list(ctx); err != nil {
		return err
	}
	if one, ok := e.Object.(*networkingv1.ServiceCIDR); ok && one.Name == DefaultRange && e.Type == watch.Deleted {
		return c.ensure(ctx)
	}
	return nil
}
