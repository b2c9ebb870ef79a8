// Package networkpolicy serves the resource networkpolicies of networking.k8s.io/v1: whom pods may talk to. The role netpolicy enforces them on the built-in
// network.
package networkpolicy

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

// Resource is the resource networkpolicies.
func Resource() resource.Of[*networkingv1.NetworkPolicy, *networkingv1.NetworkPolicyList] {
	return resource.Of[*networkingv1.NetworkPolicy, *networkingv1.NetworkPolicyList]{
		Group:      networkingv1.GroupName,
		Plural:     "networkpolicies",
		Short:      []string{"netpol"},
		Namespaced: true,
		ReadBy:     resource.Viewer,
		WrittenBy:  resource.Editor,
		Honours: apifields.Table{
			reflect.TypeFor[networkingv1.NetworkPolicy]():            apifields.All("Spec"),
			reflect.TypeFor[networkingv1.NetworkPolicySpec]():        apifields.All("PodSelector", "Ingress", "Egress", "PolicyTypes"),
			reflect.TypeFor[networkingv1.NetworkPolicyIngressRule](): apifields.All("Ports", "From"),
			reflect.TypeFor[networkingv1.NetworkPolicyEgressRule]():  apifields.All("Ports", "To"),
			reflect.TypeFor[networkingv1.NetworkPolicyPort]():        apifields.All("Protocol", "Port", "EndPort"),
			reflect.TypeFor[networkingv1.NetworkPolicyPeer]():        apifields.All("PodSelector", "NamespaceSelector", "IPBlock"),
			reflect.TypeFor[networkingv1.IPBlock]():                  apifields.All("CIDR", "Except"),
		},
		Generation: true,
		Default:    setDefaults,
		Create:     validate,
		Update:     validateUpdate,
		Columns: []resource.Column[*networkingv1.NetworkPolicy]{
			{Name: "Name"},
			{Name: "Pod-Selector", Doc: networkingv1.NetworkPolicySpec{}.SwaggerDoc()["podSelector"], Value: func(p *networkingv1.NetworkPolicy) any {
				return metav1.FormatLabelSelector(&p.Spec.PodSelector)
			}},
			{Name: "Age"},
		},
	}
}

// setDefaults: a policy is about what comes in, and, where it has rules for it, about what goes out; ports are TCP's.
func setDefaults(p *networkingv1.NetworkPolicy) {
	if len(p.Spec.PolicyTypes) == 0 {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(p.Spec.Egress) != 0 {
			p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	for i := range p.Spec.Ingress {
		setPortDefaults(p.Spec.Ingress[i].Ports)
	}
	for i := range p.Spec.Egress {
		setPortDefaults(p.Spec.Egress[i].Ports)
	}
}

func setPortDefaults(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		if ports[i].Protocol == nil {
			tcp := corev1.ProtocolTCP
			ports[i].Protocol = &tcp
		}
	}
}
