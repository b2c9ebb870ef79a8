// Package servicecidr serves the resource servicecidrs of networking.k8s.io/v1 and its subresource status: the ranges out of which services get their
// addresses. One that is being deleted stays for as long as it is needed; a controller sees to that.
package servicecidr

import (
	"net/netip"
	"reflect"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

// Resource is the resource servicecidrs.
func Resource() resource.Of[*networkingv1.ServiceCIDR, *networkingv1.ServiceCIDRList] {
	doc := networkingv1.ServiceCIDRSpec{}.SwaggerDoc()
	return resource.Of[*networkingv1.ServiceCIDR, *networkingv1.ServiceCIDRList]{
		Group:  networkingv1.GroupName,
		Plural: "servicecidrs",
		Honours: apifields.Table{
			reflect.TypeFor[networkingv1.ServiceCIDR]():     apifields.All("Spec").And(apifields.Left, "Status"),
			reflect.TypeFor[networkingv1.ServiceCIDRSpec](): apifields.All("CIDRs"),
		},
		Create: func(c *networkingv1.ServiceCIDR) field.ErrorList { return validate(c.Spec.CIDRs) },
		Update: func(c, old *networkingv1.ServiceCIDR) field.ErrorList {
			return validateUpdate(c.Spec.CIDRs, old.Spec.CIDRs)
		},
		Status: &resource.Status[*networkingv1.ServiceCIDR]{},
		Columns: []resource.Column[*networkingv1.ServiceCIDR]{
			{Name: "Name"},
			{Name: "CIDRs", Doc: doc["cidrs"], Value: func(c *networkingv1.ServiceCIDR) any { return strings.Join(c.Spec.CIDRs, ",") }},
			{Name: "Age"},
		},
	}
}

func at() *field.Path { return field.NewPath("spec", "cidrs") }

func validate(cidrs []string) (errs field.ErrorList) {
	switch {
	case len(cidrs) == 0:
		return field.ErrorList{field.Required(at(), "at least one CIDR required")}
	case len(cidrs) > 2:
		return field.ErrorList{field.Invalid(at(), cidrs, "may only hold up to 2 values")}
	}
	families := map[bool]bool{}
	for i, c := range cidrs {
		p, err := netip.ParsePrefix(c)
		switch {
		case err != nil || p.Addr().Is4In6():
			errs = append(errs, field.Invalid(at().Index(i), c, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"))
			continue
		case p.Masked() != p:
			errs = append(errs, field.Invalid(at().Index(i), c, "must not have bits set beyond the prefix length"))
		case p.String() != c:
			errs = append(errs, field.Invalid(at().Index(i), c, "must be in canonical form ("+p.String()+")"))
		}
		if families[p.Addr().Is4()] {
			errs = append(errs, field.Invalid(at(), cidrs, "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"))
		}
		families[p.Addr().Is4()] = true
	}
	return errs
}

// validateUpdate: a range stays what it is. One of the other family may be added.
func validateUpdate(cidrs, old []string) (errs field.ErrorList) {
	if len(cidrs) != len(old) && (len(old) != 1 || len(cidrs) != 2) {
		return field.ErrorList{field.Invalid(at(), cidrs, apivalidation.FieldImmutableErrorMsg)}
	}
	for i, c := range old {
		if cidrs[i] != c {
			errs = append(errs, field.Invalid(at().Index(i), cidrs[i], apivalidation.FieldImmutableErrorMsg))
		}
	}
	if len(cidrs) > len(old) {
		errs = append(errs, validate(cidrs)...)
	}
	return errs
}
