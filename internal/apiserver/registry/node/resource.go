// Package node serves the resource nodes of core/v1 and its subresources status and proxy.
package node

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/resource"
)

// Resource is the resource nodes. A new node keeps the status that came with it, against the API conventions, because that is how kubelets have always
// registered: capacity, addresses and conditions in the very first request. Like their requests, a new status may change labels and annotations too.
func Resource(proxy Proxy, authz authorizer.UnconditionalAuthorizer) resource.Of[*corev1.Node, *corev1.NodeList] {
	return resource.Of[*corev1.Node, *corev1.NodeList]{
		Plural: "nodes",
		Short:  []string{"no"},
		Create: validate,
		Update: validateUpdate,
		Status: &resource.Status[*corev1.Node]{OnCreate: true, WithMetadata: true, Update: validateUpdate},
		Fields: func(n *corev1.Node) fields.Set {
			return fields.Set{"spec.unschedulable": strconv.FormatBool(n.Spec.Unschedulable)}
		},
		Parts:   map[string]resource.Part{"proxy": {Storage: func(*genericregistry.Store) rest.Storage { return NewProxy(proxy, authz) }}},
		Scheme:  AddOptions,
		Columns: columns(),
		Row:     nodeRow,
	}
}
