package endpoints

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/endpointslice/util"
)

// maxMirrored is how many addresses of a subset are shown.
const maxMirrored = 1000

// mirror shows the Endpoints that somebody has written for a service without a selector as slices: one for each subset and family.
func (c *Controller) mirror(ctx context.Context, service *corev1.Service) error {
	written, err := c.endpoints.Endpoints(service.Namespace).Get(service.Name)
	if apierrors.IsNotFound(err) {
		return c.removeMirrors(ctx, service.Namespace, service.Name)
	}
	if err != nil {
		return err
	}
	_, lock := written.Annotations[resourcelock.LeaderElectionRecordAnnotationKey]
	if lock || written.Labels[discoveryv1.LabelSkipMirror] == "true" || written.Labels[managedBy] == managed {
		return c.removeMirrors(ctx, service.Namespace, service.Name)
	}
	have, err := c.slicesOf(service.Namespace, service.Name, mirrorController)
	if err != nil {
		return err
	}
	tracked := c.written[mirrorController]
	if tracked.StaleSlices(service, have) {
		return errStale
	}
	to := c.cfg.Kube.DiscoveryV1().EndpointSlices(service.Namespace)
	var errs []error
	unused := poolOf(have)
	for _, wanted := range mirrors(written) {
		is := unused.take(shapeOf(wanted))
		if is == nil {
			made, err := to.Create(ctx, wanted, metav1.CreateOptions{})
			if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				return nil // all in it goes
			}
			if err == nil {
				tracked.Update(made)
			}
			errs = append(errs, err)
			continue
		}
		if apiequality.Semantic.DeepEqual(is.Endpoints, wanted.Endpoints) && maps.Equal(is.Labels, wanted.Labels) && maps.Equal(is.Annotations, wanted.Annotations) {
			continue
		}
		is = is.DeepCopy()
		is.Endpoints, is.Ports, is.Labels, is.Annotations = wanted.Endpoints, wanted.Ports, wanted.Labels, wanted.Annotations
		made, err := to.Update(ctx, is, metav1.UpdateOptions{})
		if err == nil {
			tracked.Update(made)
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, c.removeSlices(ctx, unused.left()))...)
}

// shape is what two slices of a service have in common of which one can take the other's place.
type shape struct {
	family discoveryv1.AddressType
	ports  util.PortMapKey
}

func shapeOf(s *discoveryv1.EndpointSlice) shape {
	return shape{s.AddressType, util.NewPortMapKey(slices.Clone(s.Ports))} // the library sorts what it is given, which may be the cache's
}

// pool are slices by their shapes: whoever has written Endpoints may have written thousands of subsets.
type pool map[shape][]*discoveryv1.EndpointSlice

func poolOf(list []*discoveryv1.EndpointSlice) pool {
	p := pool{}
	for _, s := range list {
		of := shapeOf(s)
		p[of] = append(p[of], s)
	}
	return p
}

// take takes one of a shape out; nil: there is none.
func (p pool) take(of shape) *discoveryv1.EndpointSlice {
	list := p[of]
	if len(list) == 0 {
		return nil
	}
	p[of] = list[1:]
	return list[0]
}

// left are those that nobody has taken.
func (p pool) left() (all []*discoveryv1.EndpointSlice) {
	for _, list := range p {
		all = append(all, list...)
	}
	return all
}

// mirrors are the slices of Endpoints.
func mirrors(written *corev1.Endpoints) (all []*discoveryv1.EndpointSlice) {
	for i := range written.Subsets {
		subset := &written.Subsets[i]
		byFamily := map[discoveryv1.AddressType]*discoveryv1.EndpointSlice{}
		shown := 0
		add := func(addresses []corev1.EndpointAddress, ready bool) {
			for j := range addresses {
				a := &addresses[j]
				ip, err := netip.ParseAddr(a.IP)
				if err != nil || shown >= maxMirrored {
					continue
				}
				family := discoveryv1.AddressTypeIPv4
				if ip.Is6() {
					family = discoveryv1.AddressTypeIPv6
				}
				if byFamily[family] == nil {
					byFamily[family] = newMirror(written, subset, family)
				}
				byFamily[family].Endpoints = append(byFamily[family].Endpoints, mirrored(a, ready))
				shown++
			}
		}
		add(subset.Addresses, true)
		add(subset.NotReadyAddresses, false)
		for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
			if s := byFamily[family]; s != nil {
				all = append(all, s)
			}
		}
	}
	return all
}

func newMirror(written *corev1.Endpoints, subset *corev1.EndpointSubset, family discoveryv1.AddressType) *discoveryv1.EndpointSlice {
	owner := metav1.NewControllerRef(written, corev1.SchemeGroupVersion.WithKind("Endpoints"))
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: written.Namespace, GenerateName: written.Name + "-", OwnerReferences: []metav1.OwnerReference{*owner},
			Labels: map[string]string{}, Annotations: map[string]string{},
		},
		AddressType: family, Ports: []discoveryv1.EndpointPort{},
	}
	maps.Copy(s.Labels, written.Labels)
	s.Labels[discoveryv1.LabelServiceName], s.Labels[discoveryv1.LabelManagedBy] = written.Name, mirrorController
	for key, value := range written.Annotations {
		if key != corev1.LastAppliedConfigAnnotation {
			s.Annotations[key] = value
		}
	}
	for _, p := range subset.Ports {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &p.Port, Protocol: &p.Protocol, AppProtocol: p.AppProtocol})
	}
	return s
}

func mirrored(a *corev1.EndpointAddress, ready bool) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{a.IP}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}, TargetRef: a.TargetRef, NodeName: a.NodeName}
	if a.Hostname != "" {
		e.Hostname = &a.Hostname
	}
	return e
}

// removeMirrors takes away what was shown of Endpoints that are no more, or no longer somebody's own.
func (c *Controller) removeMirrors(ctx context.Context, namespace, service string) error {
	have, err := c.slicesOf(namespace, service, mirrorController)
	if err != nil {
		return err
	}
	return c.removeSlices(ctx, have)
}

func (c *Controller) removeSlices(ctx context.Context, list []*discoveryv1.EndpointSlice) error {
	var errs []error
	for _, s := range list {
		err := c.cfg.Kube.DiscoveryV1().EndpointSlices(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{})
		if err == nil {
			c.written[mirrorController].ExpectDeletion(s)
		}
		if !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
