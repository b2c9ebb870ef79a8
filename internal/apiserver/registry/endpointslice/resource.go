// Package endpointslice serves the resource endpointslices of discovery.k8s.io/v1: the addresses behind services.
package endpointslice

import (
	"reflect"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

// Resource is the resource endpointslices.
func Resource() resource.Of[*discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList] {
	doc := discoveryv1.EndpointSlice{}.SwaggerDoc()
	return resource.Of[*discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList]{
		Group:      discoveryv1.GroupName,
		Plural:     "endpointslices",
		Namespaced: true,
		ReadBy:     resource.Viewer,
		Honours: apifields.Table{
			reflect.TypeFor[discoveryv1.EndpointSlice]():      apifields.All("AddressType", "Endpoints", "Ports"),
			reflect.TypeFor[discoveryv1.Endpoint]():           apifields.All("Addresses", "Conditions", "Hostname", "TargetRef", "DeprecatedTopology", "NodeName", "Zone", "Hints"),
			reflect.TypeFor[discoveryv1.EndpointConditions](): apifields.All("Ready", "Serving", "Terminating"),
			reflect.TypeFor[discoveryv1.EndpointHints]():      apifields.All("ForZones", "ForNodes"),
			reflect.TypeFor[discoveryv1.ForZone]():            apifields.All("Name"),
			reflect.TypeFor[discoveryv1.ForNode]():            apifields.All("Name"),
			reflect.TypeFor[discoveryv1.EndpointPort]():       apifields.All("Name", "Protocol", "Port", "AppProtocol"),
			reflect.TypeFor[corev1.ObjectReference]():         apifields.All("Kind", "Namespace", "Name", "UID", "APIVersion", "ResourceVersion", "FieldPath"),
		},
		Default: setDefaults,
		Create:  validate,
		Update:  validateUpdate,
		Prepare: func(s *discoveryv1.EndpointSlice) { s.Generation = 1 },
		PrepareUpdate: func(s, old *discoveryv1.EndpointSlice) {
			s.Generation = old.Generation
			if !apiequality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) || !apiequality.Semantic.DeepEqual(s.Ports, old.Ports) ||
				!apiequality.Semantic.DeepEqual(s.Labels, old.Labels) {
				s.Generation++
			}
		},
		Columns: []resource.Column[*discoveryv1.EndpointSlice]{
			{Name: "Name"},
			{Name: "AddressType", Doc: doc["addressType"], Value: func(s *discoveryv1.EndpointSlice) any { return string(s.AddressType) }},
			{Name: "Ports", Doc: doc["ports"], Value: ports},
			{Name: "Endpoints", Doc: doc["endpoints"], Value: endpoints},
			{Name: "Age"},
		},
	}
}

func setDefaults(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		p := &s.Ports[i]
		if p.Name == nil {
			p.Name = new(string)
		}
		if p.Protocol == nil {
			tcp := corev1.ProtocolTCP
			p.Protocol = &tcp
		}
	}
}

// shown is how many ports, and endpoints, a table has room for.
const shown = 3

func ports(s *discoveryv1.EndpointSlice) any {
	var all []string
	for _, p := range s.Ports {
		switch {
		case p.Port != nil:
			all = append(all, strconv.Itoa(int(*p.Port)))
		case p.Name != nil && *p.Name != "":
			all = append(all, *p.Name)
		default:
			all = append(all, "*")
		}
	}
	if len(all) == 0 {
		return resource.Unset
	}
	return resource.Few(all, shown)
}

func endpoints(s *discoveryv1.EndpointSlice) any {
	var all []string
	for i := range s.Endpoints {
		all = append(all, s.Endpoints[i].Addresses...)
	}
	if len(all) == 0 {
		return resource.Unset
	}
	return resource.Few(all, shown)
}
