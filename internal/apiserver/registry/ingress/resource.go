// Package ingress serves the resource ingresses of networking.k8s.io/v1: data for the ingress controllers that somebody runs.
package ingress

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

// ClassAnnotation named the class of an Ingress before there was a field for it.
const ClassAnnotation = "kubernetes.io/ingress.class"

// Resource is the resource ingresses.
func Resource() resource.Of[*networkingv1.Ingress, *networkingv1.IngressList] {
	return resource.Of[*networkingv1.Ingress, *networkingv1.IngressList]{
		Group:      networkingv1.GroupName,
		Plural:     "ingresses",
		Short:      []string{"ing"},
		Namespaced: true,
		ReadBy:     resource.Viewer,
		WrittenBy:  resource.Editor,
		Honours: apifields.Table{
			reflect.TypeFor[networkingv1.Ingress]():               apifields.All("Spec").And(apifields.Left, "Status"),
			reflect.TypeFor[networkingv1.IngressSpec]():           apifields.All("IngressClassName", "DefaultBackend", "TLS", "Rules"),
			reflect.TypeFor[networkingv1.IngressTLS]():            apifields.All("Hosts", "SecretName"),
			reflect.TypeFor[networkingv1.IngressRule]():           apifields.All("Host", "IngressRuleValue"),
			reflect.TypeFor[networkingv1.IngressRuleValue]():      apifields.All("HTTP"),
			reflect.TypeFor[networkingv1.HTTPIngressRuleValue]():  apifields.All("Paths"),
			reflect.TypeFor[networkingv1.HTTPIngressPath]():       apifields.All("Path", "PathType", "Backend"),
			reflect.TypeFor[networkingv1.IngressBackend]():        apifields.All("Service", "Resource"),
			reflect.TypeFor[networkingv1.IngressServiceBackend](): apifields.All("Name", "Port"),
			reflect.TypeFor[networkingv1.ServiceBackendPort]():    apifields.All("Name", "Number"),
			reflect.TypeFor[corev1.TypedLocalObjectReference]():   apifields.All("APIGroup", "Kind", "Name"),
		},
		Generation: true,
		Create:     validateNew,
		Update:     func(i, _ *networkingv1.Ingress) errorList { return validate(i) },
		Warn: func(i *networkingv1.Ingress) []string {
			if _, ok := i.Annotations[ClassAnnotation]; ok && i.Spec.IngressClassName == nil {
				return []string{fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead", ClassAnnotation)}
			}
			return nil
		},
		Status:  &resource.Status[*networkingv1.Ingress]{Update: validateStatus},
		Columns: columns(),
	}
}

func columns() []resource.Column[*networkingv1.Ingress] {
	return []resource.Column[*networkingv1.Ingress]{
		{Name: "Name"},
		{Name: "Class", Doc: "The name of the IngressClass resource that should be used for additional configuration", Value: func(i *networkingv1.Ingress) any {
			if i.Spec.IngressClassName == nil {
				return resource.None
			}
			return *i.Spec.IngressClassName
		}},
		{Name: "Hosts", Doc: "Hosts that incoming requests are matched against before the ingress rule", Value: hosts},
		{Name: "Address", Doc: "Address is a list containing ingress points for the load-balancer", Value: address},
		{Name: "Ports", Doc: "Ports of TLS configurations that open", Value: func(i *networkingv1.Ingress) any {
			if len(i.Spec.TLS) > 0 {
				return "80, 443"
			}
			return "80"
		}},
		{Name: "Age"},
	}
}

// hosts are those of the first rules. What is left are rules, not hosts, as kubectl's users know it.
func hosts(i *networkingv1.Ingress) any {
	const shown = 3
	var all []string
	for _, r := range i.Spec.Rules {
		if len(all) == shown {
			return fmt.Sprintf("%s + %d more...", strings.Join(all, ","), len(i.Spec.Rules)-shown)
		}
		if r.Host != "" {
			all = append(all, r.Host)
		}
	}
	if len(all) == 0 {
		return "*"
	}
	return strings.Join(all, ",")
}

func address(i *networkingv1.Ingress) any {
	var all []string
	for _, at := range i.Status.LoadBalancer.Ingress {
		if at.IP != "" {
			all = append(all, at.IP)
		} else if at.Hostname != "" {
			all = append(all, at.Hostname)
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ",")
}
