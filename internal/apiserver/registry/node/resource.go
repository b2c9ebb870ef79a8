// Package node serves the resource nodes of core/v1 and its subresources status and proxy.
package node

import (
	"reflect"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

// Resource is the resource nodes. A new node keeps the status that came with it, against the API conventions, because that is how kubelets have always
// registered: capacity, addresses and conditions in the very first request. Like their requests, a new status may change labels and annotations too.
func Resource() resource.Of[*corev1.Node, *corev1.NodeList] {
	return resource.Of[*corev1.Node, *corev1.NodeList]{
		Plural: "nodes",
		Short:  []string{"no"},
		Honours: apifields.Table{
			reflect.TypeFor[corev1.Node](): apifields.All("Spec").And(apifields.Left, "Status"),
			// ConfigSource was of kubelets that were configured through the API, which nobody does any more.
			reflect.TypeFor[corev1.NodeSpec](): apifields.All("PodCIDR", "PodCIDRs", "ProviderID", "Unschedulable", "Taints", "DoNotUseExternalID").
				And(apifields.Refused, "ConfigSource", "PodPreemptionPolicy"),
			reflect.TypeFor[corev1.Taint](): apifields.All("Key", "Value", "Effect", "TimeAdded"),
		},
		Create: validate,
		Update: validateUpdate,
		Status: &resource.Status[*corev1.Node]{OnCreate: true, Update: validateUpdate},
		Fields: func(n *corev1.Node) fields.Set {
			return fields.Set{"spec.unschedulable": strconv.FormatBool(n.Spec.Unschedulable)}
		},
		Scheme:  AddOptions,
		Columns: columns(),
		Row:     nodeRow,
	}
}

// ProxyTo is the subresource proxy, which leads to nodes. The authorizer is that of the server: some requests need more than their own verb.
func ProxyTo(nodes Proxy, a authorizer.UnconditionalAuthorizer) resource.Resource {
	return resource.PartOf(corev1.SchemeGroupVersion.WithResource("nodes"), map[string]rest.Storage{"nodes/proxy": NewProxy(nodes, a)})
}
