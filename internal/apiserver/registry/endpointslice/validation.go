package endpointslice

import (
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/addresses"
)

// The limits of the API (discovery.k8s.io/v1).
const (
	maxEndpoints = 1000
	maxAddresses = 100
	maxPorts     = 20000
	maxHints     = 8
	maxTopology  = 16
	maxPort      = 65535
)

var addressTypes = []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN}

func validate(s *discoveryv1.EndpointSlice) (errs field.ErrorList) {
	switch at := field.NewPath("addressType"); {
	case s.AddressType == "":
		errs = append(errs, field.Required(at, ""))
	case !slices.Contains(addressTypes, s.AddressType):
		errs = append(errs, field.NotSupported(at, s.AddressType, addressTypes))
	}
	at := field.NewPath("endpoints")
	if n := len(s.Endpoints); n > maxEndpoints {
		return append(errs, field.TooMany(at, n, maxEndpoints))
	}
	for i := range s.Endpoints {
		errs = append(errs, validateEndpoint(&s.Endpoints[i], s.AddressType, at.Index(i))...)
	}
	return append(errs, validatePorts(s.Ports, field.NewPath("ports"))...)
}

func validateUpdate(s, old *discoveryv1.EndpointSlice) field.ErrorList {
	return append(apivalidation.ValidateImmutableField(s.AddressType, old.AddressType, field.NewPath("addressType")), validate(s)...)
}

func validateEndpoint(e *discoveryv1.Endpoint, kind discoveryv1.AddressType, at *field.Path) (errs field.ErrorList) {
	in := at.Child("addresses")
	switch n := len(e.Addresses); {
	case n == 0:
		errs = append(errs, field.Required(in, "must contain at least 1 address"))
	case n > maxAddresses:
		return append(errs, field.TooMany(in, n, maxAddresses))
	}
	for i, a := range e.Addresses {
		errs = append(errs, validateAddress(a, kind, in.Index(i))...)
	}
	if e.NodeName != nil {
		errs = append(errs, invalid(*e.NodeName, at.Child("nodeName"), validation.IsDNS1123Subdomain)...)
	}
	topology := at.Child("deprecatedTopology")
	if n := len(e.DeprecatedTopology); n > maxTopology {
		errs = append(errs, field.TooMany(topology, n, maxTopology))
	}
	errs = append(errs, metavalidation.ValidateLabels(e.DeprecatedTopology, topology)...)
	if e.Hostname != nil {
		errs = append(errs, invalid(*e.Hostname, at.Child("hostname"), validation.IsDNS1123Label)...)
	}
	if e.Hints != nil {
		errs = append(errs, validateHints(e.Hints, at.Child("hints"))...)
	}
	return errs
}

func validateAddress(a string, kind discoveryv1.AddressType, at *field.Path) field.ErrorList {
	ip, ok := addresses.Parse(a)
	switch kind {
	case discoveryv1.AddressTypeIPv4:
		if !ok || !ip.Is4() {
			return field.ErrorList{field.Invalid(at, a, "must be a valid IPv4 address")}
		}
	case discoveryv1.AddressTypeIPv6:
		if !ok || !ip.Is6() {
			return field.ErrorList{field.Invalid(at, a, "must be a valid IPv6 address")}
		}
	case discoveryv1.AddressTypeFQDN:
		return validation.IsFullyQualifiedDomainName(at, a)
	}
	if ok {
		return addresses.Endpoint(a, at)
	}
	return nil
}

func validateHints(h *discoveryv1.EndpointHints, at *field.Path) (errs field.ErrorList) {
	check := func(names []string, at *field.Path, valid func(string) []string) {
		if len(names) > maxHints {
			errs = append(errs, field.TooMany(at, len(names), maxHints))
			return
		}
		seen := sets.New[string]()
		for i, name := range names {
			if seen.Has(name) {
				errs = append(errs, field.Duplicate(at.Index(i), name))
			}
			seen.Insert(name)
			errs = append(errs, invalid(name, at.Index(i).Child("name"), valid)...)
		}
	}
	var zones, nodes []string
	for _, z := range h.ForZones {
		zones = append(zones, z.Name)
	}
	for _, n := range h.ForNodes {
		nodes = append(nodes, n.Name)
	}
	check(zones, at.Child("forZones"), validation.IsValidLabelValue)
	check(nodes, at.Child("forNodes"), validation.IsDNS1123Subdomain)
	return errs
}

func validatePorts(ports []discoveryv1.EndpointPort, at *field.Path) (errs field.ErrorList) {
	if n := len(ports); n > maxPorts {
		return field.ErrorList{field.TooMany(at, n, maxPorts)}
	}
	names := sets.New[string]()
	for i := range ports {
		p, at := &ports[i], at.Index(i)
		if p.Name != nil {
			if *p.Name != "" {
				errs = append(errs, invalid(*p.Name, at.Child("name"), validation.IsDNS1123Label)...)
			}
			if names.Has(*p.Name) {
				errs = append(errs, field.Duplicate(at.Child("name"), *p.Name))
			}
			names.Insert(*p.Name)
		}
		if p.Protocol == nil {
			errs = append(errs, field.Required(at.Child("protocol"), ""))
		} else {
			errs = append(errs, addresses.Protocol(*p.Protocol, at.Child("protocol"))...)
		}
		if p.Port != nil && (*p.Port < 1 || *p.Port > maxPort) {
			errs = append(errs, field.Invalid(at.Child("port"), *p.Port, validation.InclusiveRangeError(1, maxPort)))
		}
		if p.AppProtocol != nil {
			errs = append(errs, invalid(*p.AppProtocol, at.Child("appProtocol"), validation.IsQualifiedName)...)
		}
	}
	return errs
}

func invalid(value string, at *field.Path, check func(string) []string) (errs field.ErrorList) {
	for _, msg := range check(value) {
		errs = append(errs, field.Invalid(at, value, msg))
	}
	return errs
}
