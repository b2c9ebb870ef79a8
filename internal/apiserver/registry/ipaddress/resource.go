// Package ipaddress serves the resource ipaddresses of networking.k8s.io/v1: who has an address. Those of services are made where services are (package
// service): that one is made is what gives the address to its service. Others may make theirs, and no service gets such an address.
package ipaddress

import (
	"reflect"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/addresses"
	"monopod.dev/monopod/internal/apiserver/registry/ingressclass"
	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

// Resource is the resource ipaddresses.
func Resource() resource.Of[*networkingv1.IPAddress, *networkingv1.IPAddressList] {
	doc := networkingv1.IPAddressSpec{}.SwaggerDoc()
	return resource.Of[*networkingv1.IPAddress, *networkingv1.IPAddressList]{
		Group:  networkingv1.GroupName,
		Plural: "ipaddresses",
		Short:  []string{"ip"},
		Honours: apifields.Table{
			reflect.TypeFor[networkingv1.IPAddress]():       apifields.All("Spec"),
			reflect.TypeFor[networkingv1.IPAddressSpec]():   apifields.All("ParentRef"),
			reflect.TypeFor[networkingv1.ParentReference](): apifields.All("Group", "Resource", "Namespace", "Name"),
		},
		Names:  validateName,
		Create: validate,
		Update: func(a, old *networkingv1.IPAddress) field.ErrorList {
			return apivalidation.ValidateImmutableField(a.Spec.ParentRef, old.Spec.ParentRef, field.NewPath("spec", "parentRef"))
		},
		Columns: []resource.Column[*networkingv1.IPAddress]{
			{Name: "Name"},
			{Name: "ParentRef", Doc: doc["parentRef"], Value: parent},
			{Name: "Age"},
		},
	}
}

func parent(a *networkingv1.IPAddress) any {
	p := a.Spec.ParentRef
	if p == nil {
		return resource.None
	}
	of := strings.ToLower(schema.GroupResource{Group: p.Group, Resource: p.Resource}.String())
	if p.Namespace != "" {
		of += "/" + p.Namespace
	}
	return of + "/" + p.Name
}

// validateName requires an address in its one way of writing.
func validateName(name string, _ bool) (all []string) {
	for _, err := range addresses.Valid(name, nil) {
		all = append(all, err.Detail)
	}
	if a, ok := addresses.Parse(name); ok && a.String() != name {
		all = append(all, "must be in canonical form ("+a.String()+")")
	}
	return all
}

func validate(a *networkingv1.IPAddress) (errs field.ErrorList) {
	p, at := a.Spec.ParentRef, field.NewPath("spec", "parentRef")
	if p == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	if p.Group != "" {
		for _, msg := range validation.IsDNS1123Subdomain(p.Group) {
			errs = append(errs, field.Invalid(at.Child("group"), p.Group, msg))
		}
	}
	errs = append(errs, ingressclass.Segment(p.Resource, at.Child("resource"))...)
	errs = append(errs, ingressclass.Segment(p.Name, at.Child("name"))...)
	if p.Namespace != "" {
		errs = append(errs, ingressclass.Segment(p.Namespace, at.Child("namespace"))...)
	}
	return errs
}
