package endpoints

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/addresses"
)

// maxPort is the highest port of TCP, UDP and SCTP.
const maxPort = 65535

func validate(e *corev1.Endpoints) (errs field.ErrorList) {
	if at, ok := e.Annotations[corev1.EndpointsLastChangeTriggerTime]; ok {
		if _, err := time.Parse(time.RFC3339Nano, at); err != nil {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "annotations").Key(corev1.EndpointsLastChangeTriggerTime), at,
				"must be a time as in RFC 3339"))
		}
	}
	for i := range e.Subsets {
		s, at := &e.Subsets[i], field.NewPath("subsets").Index(i)
		if len(s.Addresses) == 0 && len(s.NotReadyAddresses) == 0 {
			errs = append(errs, field.Required(at, "must specify `addresses` or `notReadyAddresses`"))
		}
		for j := range s.Addresses {
			errs = append(errs, validateAddress(&s.Addresses[j], at.Child("addresses").Index(j))...)
		}
		for j := range s.NotReadyAddresses {
			errs = append(errs, validateAddress(&s.NotReadyAddresses[j], at.Child("notReadyAddresses").Index(j))...)
		}
		for j := range s.Ports {
			errs = append(errs, validatePort(&s.Ports[j], len(s.Ports) > 1, at.Child("ports").Index(j))...)
		}
	}
	return errs
}

func validateAddress(a *corev1.EndpointAddress, at *field.Path) field.ErrorList {
	errs := addresses.Endpoint(a.IP, at.Child("ip"))
	if a.Hostname != "" {
		errs = append(errs, invalid(a.Hostname, at.Child("hostname"), validation.IsDNS1123Label)...)
	}
	if a.NodeName != nil {
		errs = append(errs, invalid(*a.NodeName, at.Child("nodeName"), validation.IsDNS1123Subdomain)...)
	}
	return errs
}

func validatePort(p *corev1.EndpointPort, named bool, at *field.Path) (errs field.ErrorList) {
	switch {
	case p.Name != "":
		errs = append(errs, invalid(p.Name, at.Child("name"), validation.IsDNS1123Label)...)
	case named:
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	if p.Port < 1 || p.Port > maxPort {
		errs = append(errs, field.Invalid(at.Child("port"), p.Port, validation.InclusiveRangeError(1, maxPort)))
	}
	errs = append(errs, addresses.Protocol(p.Protocol, at.Child("protocol"))...)
	if p.AppProtocol != nil {
		errs = append(errs, invalid(*p.AppProtocol, at.Child("appProtocol"), validation.IsQualifiedName)...)
	}
	return errs
}

func invalid(value string, at *field.Path, check func(string) []string) (errs field.ErrorList) {
	for _, msg := range check(value) {
		errs = append(errs, field.Invalid(at, value, msg))
	}
	return errs
}

// validateUpdate: what is unchanged of an object that somebody else's rules let in stays.
func validateUpdate(e, old *corev1.Endpoints) field.ErrorList {
	if apiequality.Semantic.DeepEqual(e.Subsets, old.Subsets) && apiequality.Semantic.DeepEqual(e.Annotations, old.Annotations) {
		return nil
	}
	return validate(e)
}
