package ownservice

import (
	"maps"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The service kube-dns has the name and the labels by which people, charts and monitoring look for the cluster's DNS. Whoever made one of his own keeps
// it: the node's bear the label managedBy. Its endpoints are its own addresses, because the node serves it there: who sends packets for services on to their
// endpoints leaves these as they are.

const (
	managedBy, monopod = "app.kubernetes.io/managed-by", "monopod"
	dnsPort            = 53
)

func dnsLabels() map[string]string {
	return map[string]string{
		"k8s-app": DNSName, "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "DNS", managedBy: monopod,
	}
}

// dnsPorts are the names and protocols of the ports.
var dnsPorts = []struct {
	name     string
	protocol corev1.Protocol
}{{"dns", corev1.ProtocolUDP}, {"dns-tcp", corev1.ProtocolTCP}}

// dns are the objects of the cluster's DNS, whether it is served or not.
func (k *Keeper) dns(services, endpoints, slices storage) []object {
	all := []object{k.dnsService(services), k.dnsEndpoints(endpoints)}
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		all = append(all, k.dnsSlice(slices, family))
	}
	for i := range all {
		all[i].namespace, all[i].optional = metav1.NamespaceSystem, true
		all[i].theirs = func(is runtime.Object) bool {
			m, err := meta.Accessor(is)
			return err != nil || m.GetLabels()[managedBy] != monopod
		}
		if i > 0 {
			all[i].belongsTo = &all[0]
		}
	}
	return all
}

func dnsMeta(name string, more map[string]string) metav1.ObjectMeta {
	labels := dnsLabels()
	maps.Copy(labels, more)
	return metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem, Labels: labels}
}

func (k *Keeper) dnsService(s storage) object {
	o := object{storage: s, name: DNSName}
	if len(k.cfg.DNS) == 0 {
		return o
	}
	policy, cluster := corev1.IPFamilyPolicySingleStack, corev1.ServiceInternalTrafficPolicyCluster
	if len(k.cfg.DNS) > 1 {
		policy = corev1.IPFamilyPolicyRequireDualStack
	}
	spec := corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: k.cfg.DNS[0].String(), IPFamilyPolicy: &policy, SessionAffinity: corev1.ServiceAffinityNone,
		InternalTrafficPolicy: &cluster,
	}
	for _, a := range k.cfg.DNS {
		spec.ClusterIPs, spec.IPFamilies = append(spec.ClusterIPs, a.String()), append(spec.IPFamilies, familyOf(a))
	}
	for _, p := range dnsPorts {
		spec.Ports = append(spec.Ports, corev1.ServicePort{Name: p.name, Protocol: p.protocol, Port: dnsPort, TargetPort: intstr.FromInt32(dnsPort)})
	}
	wanted := &corev1.Service{ObjectMeta: dnsMeta(DNSName, nil), Spec: spec}
	o.wanted = wanted
	o.fix = func(is runtime.Object) (bool, error) {
		s := is.(*corev1.Service)
		if !apiequality.Semantic.DeepEqual(s.Spec.ClusterIPs, spec.ClusterIPs) {
			return false, errAnew
		}
		changed := complete(&s.ObjectMeta, wanted.Labels)
		if s.Spec.Type != spec.Type || len(s.Spec.Selector) > 0 || !apiequality.Semantic.DeepEqual(s.Spec.Ports, spec.Ports) {
			s.Spec, changed = *spec.DeepCopy(), true
		}
		return changed, nil
	}
	return o
}

func familyOf(a netip.Addr) corev1.IPFamily {
	if a.Is6() {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

func (k *Keeper) dnsEndpoints(s storage) object {
	o := object{storage: s, name: DNSName}
	if len(k.cfg.DNS) == 0 {
		return o
	}
	subset := corev1.EndpointSubset{Addresses: []corev1.EndpointAddress{{IP: k.cfg.DNS[0].String()}}} // those of one family, as all Endpoints
	for _, p := range dnsPorts {
		subset.Ports = append(subset.Ports, corev1.EndpointPort{Name: p.name, Port: dnsPort, Protocol: p.protocol})
	}
	subsets := []corev1.EndpointSubset{subset}
	wanted := &corev1.Endpoints{ObjectMeta: dnsMeta(DNSName, skipMirror), Subsets: subsets}
	o.wanted = wanted
	o.fix = func(is runtime.Object) (bool, error) {
		e := is.(*corev1.Endpoints)
		changed := complete(&e.ObjectMeta, wanted.Labels)
		if !sameSubsets(e.Subsets, subsets) {
			e.Subsets, changed = subsets, true
		}
		return changed, nil
	}
	return o
}

// sameSubsets compares without regard to the order of ports, which the store has an order of its own of.
func sameSubsets(a, b []corev1.EndpointSubset) bool {
	if len(a) != 1 || len(b) != 1 || len(a[0].Ports) != len(b[0].Ports) || len(a[0].NotReadyAddresses) > 0 {
		return false
	}
	ports := map[corev1.EndpointPort]bool{}
	for _, p := range a[0].Ports {
		ports[p] = true
	}
	for _, p := range b[0].Ports {
		if !ports[p] {
			return false
		}
	}
	return apiequality.Semantic.DeepEqual(a[0].Addresses, b[0].Addresses)
}

func (k *Keeper) dnsSlice(s storage, family discoveryv1.AddressType) object {
	o := object{storage: s, name: DNSName + "-" + strings.ToLower(string(family))}
	for _, a := range k.cfg.DNS {
		if string(familyOf(a)) != string(family) {
			continue
		}
		ready := true
		wanted := &discoveryv1.EndpointSlice{
			ObjectMeta: dnsMeta(o.name, map[string]string{discoveryv1.LabelServiceName: DNSName}), AddressType: family,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{a.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		}
		for _, p := range dnsPorts {
			port := int32(dnsPort)
			wanted.Ports = append(wanted.Ports, discoveryv1.EndpointPort{Name: &p.name, Port: &port, Protocol: &p.protocol})
		}
		o.wanted = wanted
		o.fix = func(is runtime.Object) (bool, error) {
			e := is.(*discoveryv1.EndpointSlice)
			changed := complete(&e.ObjectMeta, wanted.Labels)
			if !apiequality.Semantic.DeepEqual(e.Endpoints, wanted.Endpoints) || !apiequality.Semantic.DeepEqual(e.Ports, wanted.Ports) {
				e.Endpoints, e.Ports, changed = wanted.DeepCopy().Endpoints, wanted.DeepCopy().Ports, true
			}
			return changed, nil
		}
	}
	return o
}
