package ingress

import (
	"fmt"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/addresses"
	"monopod.dev/monopod/internal/apiserver/registry/ingressclass"
)

type errorList = field.ErrorList

// validateNew is for an Ingress that is created: the old and the new way to name its class must agree then.
func validateNew(i *networkingv1.Ingress) errorList {
	errs := validate(i)
	if was, ok := i.Annotations[ClassAnnotation]; ok && i.Spec.IngressClassName != nil && was != *i.Spec.IngressClassName {
		errs = append(errs, field.Invalid(field.NewPath("annotations").Child(ClassAnnotation), was, "must match `ingressClassName` when both are specified"))
	}
	return errs
}

func validate(i *networkingv1.Ingress) (errs errorList) {
	at, spec := field.NewPath("spec"), &i.Spec
	if len(spec.Rules) == 0 && spec.DefaultBackend == nil {
		errs = append(errs, field.Invalid(at, spec.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	if spec.DefaultBackend != nil {
		errs = append(errs, validateBackend(spec.DefaultBackend, at.Child("defaultBackend"))...)
	}
	for n := range spec.Rules {
		errs = append(errs, validateRule(&spec.Rules[n], at.Child("rules").Index(n))...)
	}
	for n, tls := range spec.TLS {
		in := at.Child("tls").Index(n)
		for m, host := range tls.Hosts {
			errs = append(errs, validateHost(host, in.Child("hosts").Index(m))...)
		}
		if tls.SecretName != "" {
			errs = append(errs, invalid(tls.SecretName, in.Child("secretName"), validation.IsDNS1123Subdomain)...)
		}
	}
	if spec.IngressClassName != nil {
		errs = append(errs, invalid(*spec.IngressClassName, at.Child("ingressClassName"), validation.IsDNS1123Subdomain)...)
	}
	return errs
}

func invalid(value string, at *field.Path, rule func(string) []string) (errs errorList) {
	for _, msg := range rule(value) {
		errs = append(errs, field.Invalid(at, value, msg))
	}
	return errs
}

// validateHost is about a name of DNS, of which the first label may be *.
func validateHost(host string, at *field.Path) errorList {
	if strings.Contains(host, "*") {
		return invalid(host, at, validation.IsWildcardDNS1123Subdomain)
	}
	return invalid(host, at, validation.IsDNS1123Subdomain)
}

const noAddress = "must be a DNS name, not an IP address"

func validateRule(r *networkingv1.IngressRule, at *field.Path) (errs errorList) {
	if r.Host != "" {
		if _, ok := addresses.Parse(r.Host); ok {
			errs = append(errs, field.Invalid(at.Child("host"), r.Host, noAddress))
		}
		errs = append(errs, validateHost(r.Host, at.Child("host"))...)
	}
	if r.HTTP == nil {
		return errs
	}
	in := at.Child("http", "paths")
	if len(r.HTTP.Paths) == 0 {
		errs = append(errs, field.Required(in, ""))
	}
	for i := range r.HTTP.Paths {
		errs = append(errs, validatePath(&r.HTTP.Paths[i], in.Index(i))...)
	}
	return errs
}

// Of a path that is compared part by part nothing may be there that means the same as another path.
var (
	oddParts = []string{"//", "/./", "/../", "%2f", "%2F"}
	oddEnds  = []string{"/..", "/."}
	types    = []networkingv1.PathType{networkingv1.PathTypeExact, networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypePrefix}
)

func validatePath(p *networkingv1.HTTPIngressPath, at *field.Path) (errs errorList) {
	if p.PathType == nil {
		return errorList{field.Required(at.Child("pathType"), "pathType must be specified")}
	}
	in := at.Child("path")
	absolute := strings.HasPrefix(p.Path, "/")
	switch *p.PathType {
	case networkingv1.PathTypeExact, networkingv1.PathTypePrefix:
		for _, part := range oddParts {
			if strings.Contains(p.Path, part) {
				errs = append(errs, field.Invalid(in, p.Path, fmt.Sprintf("must not contain '%s'", part)))
			}
		}
		for _, end := range oddEnds {
			if strings.HasSuffix(p.Path, end) {
				errs = append(errs, field.Invalid(in, p.Path, fmt.Sprintf("cannot end with '%s'", end)))
			}
		}
	case networkingv1.PathTypeImplementationSpecific:
		absolute = absolute || p.Path == ""
	default:
		errs = append(errs, field.NotSupported(at.Child("pathType"), *p.PathType, types))
		absolute = true
	}
	if !absolute {
		errs = append(errs, field.Invalid(in, p.Path, "must be an absolute path"))
	}
	return append(errs, validateBackend(&p.Backend, at.Child("backend"))...)
}

func validateBackend(b *networkingv1.IngressBackend, at *field.Path) (errs errorList) {
	switch {
	case b.Resource != nil && b.Service != nil:
		return errorList{field.Invalid(at, "", "cannot set both resource and service backends")}
	case b.Resource == nil && b.Service == nil:
		return errorList{field.Invalid(at, "", "resource or service backend is required")}
	case b.Resource != nil:
		in := at.Child("resource")
		if group := b.Resource.APIGroup; group != nil {
			errs = append(errs, invalid(*group, in.Child("apiGroup"), validation.IsDNS1123Subdomain)...)
		}
		errs = append(errs, ingressclass.Segment(b.Resource.Kind, in.Child("kind"))...)
		return append(errs, ingressclass.Segment(b.Resource.Name, in.Child("name"))...)
	}
	in := at.Child("service")
	if b.Service.Name == "" {
		errs = append(errs, field.Required(in.Child("name"), ""))
	} else {
		errs = append(errs, invalid(b.Service.Name, in.Child("name"), func(s string) []string { return apivalidation.NameIsDNSLabel(s, false) })...)
	}
	switch port := b.Service.Port; {
	case port.Name != "" && port.Number != 0:
		errs = append(errs, field.Invalid(at, "", "cannot set both port name & port number"))
	case port.Name != "":
		errs = append(errs, invalid(port.Name, in.Child("port", "name"), validation.IsValidPortName)...)
	case port.Number != 0:
		for _, msg := range validation.IsValidPortNum(int(port.Number)) {
			errs = append(errs, field.Invalid(in.Child("port", "number"), port.Number, msg))
		}
	default:
		errs = append(errs, field.Required(at, "port name or number is required"))
	}
	return errs
}

// validateStatus is about what an ingress controller says of where the Ingress is reached.
func validateStatus(i, _ *networkingv1.Ingress) (errs errorList) {
	at := field.NewPath("status", "loadBalancer", "ingress")
	for n, in := range i.Status.LoadBalancer.Ingress {
		if in.IP != "" {
			errs = append(errs, addresses.Valid(in.IP, at.Index(n).Child("ip"))...)
		}
		if in.Hostname != "" {
			errs = append(errs, invalid(in.Hostname, at.Index(n).Child("hostname"), validation.IsDNS1123Subdomain)...)
			if _, ok := addresses.Parse(in.Hostname); ok {
				errs = append(errs, field.Invalid(at.Index(n).Child("hostname"), in.Hostname, noAddress))
			}
		}
	}
	return errs
}
