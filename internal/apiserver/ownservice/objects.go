package ownservice

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// portName and port are those of the service, by which clients in pods have always known it.
const (
	portName = "https"
	port     = 443
)

// objectMeta is that of the objects of the API, with their labels.
func objectMeta(labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: Name, Namespace: metav1.NamespaceDefault, Labels: labels}
}

// complete adds labels that are missing, or are others.
func complete(m *metav1.ObjectMeta, labels map[string]string) (changed bool) {
	for key, value := range labels {
		if m.Labels[key] != value {
			if m.Labels == nil {
				m.Labels = map[string]string{}
			}
			m.Labels[key], changed = value, true
		}
	}
	return changed
}

func (k *Keeper) service(s storage) object {
	labels := map[string]string{"component": "apiserver", "provider": "kubernetes"}
	policy, cluster := corev1.IPFamilyPolicySingleStack, corev1.ServiceInternalTrafficPolicyCluster
	first := k.cfg.ClusterIPs[0]
	family := corev1.IPv4Protocol
	if first.Is6() {
		family = corev1.IPv6Protocol
	}
	wanted := &corev1.Service{ObjectMeta: objectMeta(labels), Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: first.String(), ClusterIPs: []string{first.String()}, IPFamilyPolicy: &policy,
		IPFamilies: []corev1.IPFamily{family}, SessionAffinity: corev1.ServiceAffinityNone, InternalTrafficPolicy: &cluster,
		Ports: []corev1.ServicePort{{Name: portName, Protocol: corev1.ProtocolTCP, Port: port, TargetPort: intstr.FromInt32(int32(k.cfg.Port))}},
	}}
	return object{storage: s, namespace: metav1.NamespaceDefault, name: Name, wanted: wanted, fix: func(is runtime.Object) (bool, error) {
		s := is.(*corev1.Service)
		if s.Spec.ClusterIP != wanted.Spec.ClusterIP {
			k.cfg.Log.Info("the service kubernetes gets another address", "from", s.Spec.ClusterIP, "to", wanted.Spec.ClusterIP)
			return false, errAnew
		}
		changed := complete(&s.ObjectMeta, labels)
		if s.Spec.Type != wanted.Spec.Type || len(s.Spec.Selector) > 0 || !apiequality.Semantic.DeepEqual(s.Spec.Ports, wanted.Spec.Ports) {
			s.Spec, changed = *wanted.Spec.DeepCopy(), true
		}
		return changed, nil
	}}
}

// skipMirror: the slice is made here, and not of the endpoints.
var skipMirror = map[string]string{discoveryv1.LabelSkipMirror: "true"}

func (k *Keeper) endpoints(s storage) object {
	o := object{storage: s, namespace: metav1.NamespaceDefault, name: Name}
	if !k.cfg.Endpoint.IsValid() {
		return o
	}
	subsets := []corev1.EndpointSubset{{
		Addresses: []corev1.EndpointAddress{{IP: k.cfg.Endpoint.Addr().String()}},
		Ports:     []corev1.EndpointPort{{Name: portName, Port: int32(k.cfg.Endpoint.Port()), Protocol: corev1.ProtocolTCP}},
	}}
	o.wanted = &corev1.Endpoints{ObjectMeta: objectMeta(maps.Clone(skipMirror)), Subsets: subsets}
	o.fix = func(is runtime.Object) (bool, error) {
		e := is.(*corev1.Endpoints)
		changed := complete(&e.ObjectMeta, skipMirror)
		if !apiequality.Semantic.DeepEqual(e.Subsets, subsets) {
			e.Subsets, changed = subsets, true
		}
		return changed, nil
	}
	return o
}

func (k *Keeper) slice(s storage) object {
	o := object{storage: s, namespace: metav1.NamespaceDefault, name: Name}
	if !k.cfg.Endpoint.IsValid() {
		return o
	}
	labels := map[string]string{discoveryv1.LabelServiceName: Name}
	name, protocol, port, ready := portName, corev1.ProtocolTCP, int32(k.cfg.Endpoint.Port()), true
	wanted := &discoveryv1.EndpointSlice{
		ObjectMeta: objectMeta(labels), AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{k.cfg.Endpoint.Addr().String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		Ports:     []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
	}
	if k.cfg.Endpoint.Addr().Is6() {
		wanted.AddressType = discoveryv1.AddressTypeIPv6
	}
	o.wanted = wanted
	o.fix = func(is runtime.Object) (bool, error) {
		e := is.(*discoveryv1.EndpointSlice)
		if e.AddressType != wanted.AddressType {
			return false, errAnew
		}
		changed := complete(&e.ObjectMeta, labels)
		if !apiequality.Semantic.DeepEqual(e.Endpoints, wanted.Endpoints) || !apiequality.Semantic.DeepEqual(e.Ports, wanted.Ports) {
			e.Endpoints, e.Ports, changed = slices.Clone(wanted.Endpoints), slices.Clone(wanted.Ports), true
		}
		return changed, nil
	}
	return o
}
