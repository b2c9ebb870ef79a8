// Package endpoints serves the resource endpoints of core/v1: the addresses behind a service, in the form before endpoint slices.
package endpoints

import (
	"net"
	"reflect"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

// Resource is the resource endpoints.
func Resource() resource.Of[*corev1.Endpoints, *corev1.EndpointsList] {
	return resource.Of[*corev1.Endpoints, *corev1.EndpointsList]{
		Plural:         "endpoints",
		Short:          []string{"ep"},
		Namespaced:     true,
		ReadBy:         resource.Viewer,
		CreateOnUpdate: true,
		Honours: apifields.Table{
			reflect.TypeFor[corev1.Endpoints]():       apifields.All("Subsets"),
			reflect.TypeFor[corev1.EndpointSubset]():  apifields.All("Addresses", "NotReadyAddresses", "Ports"),
			reflect.TypeFor[corev1.EndpointAddress](): apifields.All("IP", "Hostname", "NodeName", "TargetRef"),
			reflect.TypeFor[corev1.EndpointPort]():    apifields.All("Name", "Port", "Protocol", "AppProtocol"),
			reflect.TypeFor[corev1.ObjectReference](): apifields.All("Kind", "Namespace", "Name", "UID", "APIVersion", "ResourceVersion", "FieldPath"),
		},
		Default: setDefaults,
		Create:  validate,
		Update:  validateUpdate,
		Columns: []resource.Column[*corev1.Endpoints]{
			{Name: "Name"},
			{Name: "Endpoints", Doc: corev1.Endpoints{}.SwaggerDoc()["subsets"], Value: shorten},
			{Name: "Age"},
		},
	}
}

func setDefaults(e *corev1.Endpoints) {
	for i := range e.Subsets {
		for j := range e.Subsets[i].Ports {
			if p := &e.Subsets[i].Ports[j]; p.Protocol == "" {
				p.Protocol = corev1.ProtocolTCP
			}
		}
	}
}

// shown is how many endpoints a table has room for.
const shown = 3

func shorten(e *corev1.Endpoints) any {
	var all []string
	for i := range e.Subsets {
		s := &e.Subsets[i]
		for _, a := range s.Addresses {
			if len(s.Ports) == 0 {
				all = append(all, a.IP) // a headless service without ports
			}
			for _, p := range s.Ports {
				all = append(all, net.JoinHostPort(a.IP, strconv.Itoa(int(p.Port))))
			}
		}
	}
	return resource.Few(all, shown)
}
