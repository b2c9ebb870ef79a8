package networkpolicy

import (
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/addresses"
)

// types are those that a policy can be about.
var types = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress, networkingv1.PolicyTypeIngress}

func validate(p *networkingv1.NetworkPolicy) field.ErrorList { return validateWith(p, options{}) }

// validateUpdate lets what an older version has let in stay as it was.
func validateUpdate(p, old *networkingv1.NetworkPolicy) field.ErrorList {
	o := options{}
	o.selectors.AllowInvalidLabelValueInSelector = len(metavalidation.ValidateLabelSelector(&old.Spec.PodSelector, o.selectors, nil)) > 0
	for _, peer := range peersOf(old) {
		if peer.IPBlock != nil {
			o.blocks = append(append(o.blocks, peer.IPBlock.CIDR), peer.IPBlock.Except...)
		}
	}
	return validateWith(p, o)
}

// options say what is taken although it is not valid.
type options struct {
	selectors metavalidation.LabelSelectorValidationOptions
	blocks    []string
}

func peersOf(p *networkingv1.NetworkPolicy) (all []networkingv1.NetworkPolicyPeer) {
	for i := range p.Spec.Ingress {
		all = append(all, p.Spec.Ingress[i].From...)
	}
	for i := range p.Spec.Egress {
		all = append(all, p.Spec.Egress[i].To...)
	}
	return all
}

func validateWith(p *networkingv1.NetworkPolicy, o options) field.ErrorList {
	at, spec := field.NewPath("spec"), &p.Spec
	errs := metavalidation.ValidateLabelSelector(&spec.PodSelector, o.selectors, at.Child("podSelector"))
	for i := range spec.Ingress {
		in := at.Child("ingress").Index(i)
		errs = append(errs, validatePorts(spec.Ingress[i].Ports, in.Child("ports"))...)
		errs = append(errs, validatePeers(spec.Ingress[i].From, o, in.Child("from"))...)
	}
	for i := range spec.Egress {
		in := at.Child("egress").Index(i)
		errs = append(errs, validatePorts(spec.Egress[i].Ports, in.Child("ports"))...)
		errs = append(errs, validatePeers(spec.Egress[i].To, o, in.Child("to"))...)
	}
	in := at.Child("policyTypes")
	if len(spec.PolicyTypes) > len(types) {
		return append(errs, field.Invalid(in, spec.PolicyTypes, "may not specify more than two policyTypes"))
	}
	for i, t := range spec.PolicyTypes {
		if !slices.Contains(types, t) {
			errs = append(errs, field.NotSupported(in.Index(i), t, types))
		}
	}
	return errs
}

func validatePorts(ports []networkingv1.NetworkPolicyPort, at *field.Path) (errs field.ErrorList) {
	for i := range ports {
		errs = append(errs, validatePort(&ports[i], at.Index(i))...)
	}
	return errs
}

func validatePort(p *networkingv1.NetworkPolicyPort, at *field.Path) (errs field.ErrorList) {
	if p.Protocol != nil {
		errs = append(errs, addresses.Protocol(*p.Protocol, at.Child("protocol"))...)
	}
	end := at.Child("endPort")
	switch {
	case p.Port == nil && p.EndPort != nil:
		errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is not specified"))
	case p.Port == nil:
	case p.Port.Type != intstr.Int:
		if p.EndPort != nil {
			errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is non-numeric"))
		}
		for _, msg := range validation.IsValidPortName(p.Port.StrVal) {
			errs = append(errs, field.Invalid(at.Child("port"), p.Port.StrVal, msg))
		}
	default:
		for _, msg := range validation.IsValidPortNum(int(p.Port.IntVal)) {
			errs = append(errs, field.Invalid(at.Child("port"), p.Port.IntVal, msg))
		}
		if p.EndPort == nil {
			break
		}
		if *p.EndPort < p.Port.IntVal {
			errs = append(errs, field.Invalid(end, *p.EndPort, "must be greater than or equal to `port`"))
		}
		for _, msg := range validation.IsValidPortNum(int(*p.EndPort)) {
			errs = append(errs, field.Invalid(end, *p.EndPort, msg))
		}
	}
	return errs
}

func validatePeers(peers []networkingv1.NetworkPolicyPeer, o options, at *field.Path) (errs field.ErrorList) {
	for i := range peers {
		p, in := &peers[i], at.Index(i)
		kinds := 0
		if p.PodSelector != nil {
			kinds++
			errs = append(errs, metavalidation.ValidateLabelSelector(p.PodSelector, o.selectors, in.Child("podSelector"))...)
		}
		if p.NamespaceSelector != nil {
			kinds++
			errs = append(errs, metavalidation.ValidateLabelSelector(p.NamespaceSelector, o.selectors, in.Child("namespaceSelector"))...)
		}
		if p.IPBlock != nil {
			kinds++
			errs = append(errs, validateBlock(p.IPBlock, o, in.Child("ipBlock"))...)
		}
		switch {
		case kinds == 0:
			errs = append(errs, field.Required(in, "must specify a peer"))
		case kinds > 1 && p.IPBlock != nil:
			errs = append(errs, field.Forbidden(in, "may not specify both ipBlock and another peer"))
		}
	}
	return errs
}

func validateBlock(b *networkingv1.IPBlock, o options, at *field.Path) field.ErrorList {
	if b.CIDR == "" {
		return field.ErrorList{field.Required(at.Child("cidr"), "")}
	}
	errs := validation.IsValidCIDRForLegacyField(at.Child("cidr"), b.CIDR, true, o.blocks)
	whole, err := netip.ParsePrefix(b.CIDR)
	for i, e := range b.Except {
		in := at.Child("except").Index(i)
		errs = append(errs, validation.IsValidCIDRForLegacyField(in, e, true, o.blocks)...)
		part, perr := netip.ParsePrefix(e)
		if err != nil || perr != nil {
			continue // said above
		}
		if !whole.Contains(part.Addr()) || part.Bits() <= whole.Bits() {
			errs = append(errs, field.Invalid(in, e, "must be a strict subset of `cidr`"))
		}
	}
	return errs
}
