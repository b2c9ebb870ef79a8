package endpoints

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/endpointslice"
	"k8s.io/endpointslice/util"
)

const (
	// maxAddresses is how many addresses Endpoints hold; what is more is only in slices.
	maxAddresses = 1000
	truncated    = "truncated"
	// managedBy is the label of Endpoints that a controller has made, managed its value: upstream's.
	managedBy = "endpoints.kubernetes.io/managed-by"
	managed   = "endpoint-controller"
)

// fillEndpoints makes the Endpoints of a service as they should be.
func (c *Controller) fillEndpoints(ctx context.Context, service *corev1.Service, pods []*corev1.Pod) error {
	subsets, over := subsetsOf(service, pods)
	changed := c.times.ComputeEndpointLastChangeTriggerTime(service.Namespace, service, pods)
	labels := maps.Clone(service.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[managedBy] = managed
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		labels[corev1.IsHeadlessService] = ""
	} else {
		delete(labels, corev1.IsHeadlessService)
	}
	is, err := c.endpoints.Endpoints(service.Namespace).Get(service.Name)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return err
	}
	wanted := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: service.Name}}
	if !missing {
		if apiequality.Semantic.DeepEqual(is.Subsets, subsets) && maps.Equal(is.Labels, labels) && (is.Annotations[corev1.EndpointsOverCapacity] != "") == over {
			return nil
		}
		wanted = is.DeepCopy()
	}
	wanted.Subsets, wanted.Labels = subsets, labels
	if wanted.Annotations == nil {
		wanted.Annotations = map[string]string{}
	}
	delete(wanted.Annotations, corev1.EndpointsLastChangeTriggerTime)
	if !changed.IsZero() {
		wanted.Annotations[corev1.EndpointsLastChangeTriggerTime] = changed.UTC().Format(time.RFC3339Nano)
	}
	delete(wanted.Annotations, corev1.EndpointsOverCapacity)
	if over {
		wanted.Annotations[corev1.EndpointsOverCapacity] = truncated
	}
	to := c.cfg.Kube.CoreV1().Endpoints(service.Namespace)
	if !missing {
		_, err = to.Update(ctx, wanted, metav1.UpdateOptions{})
		return err
	}
	_, err = to.Create(ctx, wanted, metav1.CreateOptions{})
	switch {
	case apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil // all in it goes
	case apierrors.IsAlreadyExists(err):
		return errStale // made a moment ago, most often here
	}
	return err
}

// removeEndpoints takes away the Endpoints of a service that is no more: those that a controller has made, or if it was seen to go, whoever has made them.
func (c *Controller) removeEndpoints(ctx context.Context, name cache.ObjectName, seen bool) error {
	options := metav1.DeleteOptions{}
	if !seen {
		is, err := c.endpoints.Endpoints(name.Namespace).Get(name.Name)
		if apierrors.IsNotFound(err) || err == nil && is.Labels[managedBy] != managed {
			return nil
		}
		if err != nil {
			return err
		}
		options.Preconditions = &metav1.Preconditions{UID: &is.UID}
	}
	err := c.cfg.Kube.CoreV1().Endpoints(name.Namespace).Delete(ctx, name.Name, options)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// behind is an address behind a service.
type behind struct {
	corev1.EndpointAddress
	ready bool
	ports []corev1.EndpointPort
}

// subsetsOf are the subsets of the Endpoints of a service: of each set of ports its addresses, all in a fixed order. over: there were too many.
func subsetsOf(service *corev1.Service, pods []*corev1.Pod) (subsets []corev1.EndpointSubset, over bool) {
	all := addressesOf(service, pods)
	if over = len(all) > maxAddresses; over {
		// Those that are ready come first.
		slices.SortStableFunc(all, func(a, b behind) int { return rank(a) - rank(b) })
		all = all[:maxAddresses]
	}
	slices.SortFunc(all, func(a, b behind) int {
		return cmp.Or(slices.CompareFunc(a.ports, b.ports, comparePorts), cmp.Compare(a.IP, b.IP), cmp.Compare(a.TargetRef.UID, b.TargetRef.UID))
	})
	for _, a := range all {
		if n := len(subsets); n == 0 || !apiequality.Semantic.DeepEqual(subsets[n-1].Ports, a.ports) {
			subsets = append(subsets, corev1.EndpointSubset{Ports: a.ports})
		}
		if s := &subsets[len(subsets)-1]; a.ready {
			s.Addresses = append(s.Addresses, a.EndpointAddress)
		} else {
			s.NotReadyAddresses = append(s.NotReadyAddresses, a.EndpointAddress)
		}
	}
	return subsets, over
}

func rank(a behind) int {
	if a.ready {
		return 0
	}
	return 1
}

func comparePorts(a, b corev1.EndpointPort) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
}

func addressesOf(service *corev1.Service, pods []*corev1.Pod) (all []behind) {
	for _, pod := range pods {
		ip := addressOf(service, pod)
		if ip == "" || !util.ShouldPodBeInEndpoints(pod, service.Spec.PublishNotReadyAddresses) {
			continue
		}
		a := behind{
			EndpointAddress: corev1.EndpointAddress{IP: ip, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}},
			ready:           service.Spec.PublishNotReadyAddresses || util.IsPodReady(pod),
			ports:           portsOf(service, pod),
		}
		if len(service.Spec.Ports) > 0 && len(a.ports) == 0 {
			continue // none of the named ports is one of the pod's
		}
		if pod.Spec.NodeName != "" {
			a.NodeName = &pod.Spec.NodeName
		}
		if util.ShouldSetHostname(pod, service) {
			a.Hostname = pod.Spec.Hostname
		}
		all = append(all, a)
	}
	return all
}

// addressOf is the pod's address of the service's first family: Endpoints have but one.
func addressOf(service *corev1.Service, pod *corev1.Pod) string {
	v6 := len(service.Spec.IPFamilies) > 0 && service.Spec.IPFamilies[0] == corev1.IPv6Protocol
	for _, has := range pod.Status.PodIPs {
		if ip, err := netip.ParseAddr(has.IP); err == nil && ip.Is6() == v6 {
			return ip.String()
		}
	}
	return ""
}

func portsOf(service *corev1.Service, pod *corev1.Pod) (all []corev1.EndpointPort) {
	for i := range service.Spec.Ports {
		p := &service.Spec.Ports[i]
		number, err := endpointslice.FindPort(pod, p)
		if err != nil {
			continue // the pod has no port of that name
		}
		all = append(all, corev1.EndpointPort{Name: p.Name, Port: int32(number), Protocol: p.Protocol, AppProtocol: p.AppProtocol}) // a port
	}
	slices.SortFunc(all, comparePorts)
	return all
}
