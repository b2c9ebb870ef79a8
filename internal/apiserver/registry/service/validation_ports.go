package service

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/addresses"
)

// maxPort is the highest port of TCP, UDP and SCTP.
const maxPort = 65535

func validatePorts(s *corev1.Service, at *field.Path) (errs field.ErrorList) {
	if len(s.Spec.Ports) == 0 && !isHeadless(s) && s.Spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, field.Required(at, ""))
	}
	names, given, nodes := sets.New[string](), sets.New[numbered](), sets.New[numbered]()
	for i := range s.Spec.Ports {
		p, at := &s.Spec.Ports[i], at.Index(i)
		switch {
		case p.Name == "":
			if len(s.Spec.Ports) > 1 {
				errs = append(errs, field.Required(at.Child("name"), ""))
			}
		case names.Has(p.Name):
			errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
		default:
			names.Insert(p.Name)
			errs = append(errs, invalid(p.Name, at.Child("name"), validation.IsDNS1123Label)...)
		}
		errs = append(errs, validatePort(p, at)...)
		if n := (numbered{p.Protocol, p.Port}); given.Has(n) {
			errs = append(errs, field.Duplicate(at, corev1.ServicePort{Protocol: p.Protocol, Port: p.Port}))
		} else {
			given.Insert(n)
		}
		if p.NodePort == 0 {
			continue
		}
		if !mayHaveNodePort(s) {
			errs = append(errs, field.Forbidden(at.Child("nodePort"), "may not be used when `type` is '"+string(s.Spec.Type)+"'"))
		}
		if n := (numbered{p.Protocol, p.NodePort}); nodes.Has(n) {
			errs = append(errs, field.Duplicate(at.Child("nodePort"), p.NodePort))
		} else {
			nodes.Insert(n)
		}
	}
	return errs
}

func validatePort(p *corev1.ServicePort, at *field.Path) (errs field.ErrorList) {
	if p.Port < 1 || p.Port > maxPort {
		errs = append(errs, field.Invalid(at.Child("port"), p.Port, validation.InclusiveRangeError(1, maxPort)))
	}
	errs = append(errs, addresses.Protocol(p.Protocol, at.Child("protocol"))...)
	target := at.Child("targetPort")
	if p.TargetPort.Type == intstr.String {
		errs = append(errs, invalid(p.TargetPort.StrVal, target, validation.IsValidPortName)...)
	} else if n := p.TargetPort.IntVal; n < 1 || n > maxPort {
		errs = append(errs, field.Invalid(target, n, validation.InclusiveRangeError(1, maxPort)))
	}
	if p.AppProtocol != nil {
		errs = append(errs, invalid(*p.AppProtocol, at.Child("appProtocol"), validation.IsQualifiedName)...)
	}
	return errs
}
