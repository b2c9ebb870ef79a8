// Package ingressclass serves the resource ingressclasses of networking.k8s.io/v1: which controller, of those that somebody runs, is responsible for an
// Ingress.
package ingressclass

import (
	"reflect"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

// maxController is the most bytes that the name of a controller may have.
const maxController = 250

// Resource is the resource ingressclasses.
func Resource() resource.Of[*networkingv1.IngressClass, *networkingv1.IngressClassList] {
	return resource.Of[*networkingv1.IngressClass, *networkingv1.IngressClassList]{
		Group:  networkingv1.GroupName,
		Plural: "ingressclasses",
		Honours: apifields.Table{
			reflect.TypeFor[networkingv1.IngressClass]():                    apifields.All("Spec"),
			reflect.TypeFor[networkingv1.IngressClassSpec]():                apifields.All("Controller", "Parameters"),
			reflect.TypeFor[networkingv1.IngressClassParametersReference](): apifields.All("APIGroup", "Kind", "Name", "Scope", "Namespace"),
		},
		Generation: true,
		Default:    setDefaults,
		Create:     validate,
		Update: func(c, old *networkingv1.IngressClass) field.ErrorList {
			return append(apivalidation.ValidateImmutableField(c.Spec.Controller, old.Spec.Controller, field.NewPath("spec", "controller")), validate(c)...)
		},
		Columns: []resource.Column[*networkingv1.IngressClass]{
			{Name: "Name", Value: func(c *networkingv1.IngressClass) any {
				if c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
					return c.Name + " (default)"
				}
				return c.Name
			}},
			{Name: "Controller", Doc: "Controller that is responsible for handling this class", Value: func(c *networkingv1.IngressClass) any { return c.Spec.Controller }},
			{Name: "Parameters", Doc: "A reference to a resource with additional parameters", Value: parameters},
			{Name: "Age"},
		},
	}
}

func setDefaults(c *networkingv1.IngressClass) {
	if p := c.Spec.Parameters; p != nil && p.Scope == nil {
		scope := networkingv1.IngressClassParametersReferenceScopeCluster
		p.Scope = &scope
	}
}

func parameters(c *networkingv1.IngressClass) any {
	p := c.Spec.Parameters
	if p == nil {
		return resource.None
	}
	kind := p.Kind
	if p.APIGroup != nil {
		kind += "." + *p.APIGroup
	}
	return kind + "/" + p.Name
}

func validate(c *networkingv1.IngressClass) (errs field.ErrorList) {
	at := field.NewPath("spec")
	if len(c.Spec.Controller) > maxController {
		errs = append(errs, field.TooLong(at.Child("controller"), c.Spec.Controller, maxController))
	}
	errs = append(errs, validation.IsDomainPrefixedPath(at.Child("controller"), c.Spec.Controller)...)
	if c.Spec.Parameters != nil {
		errs = append(errs, validateParameters(c.Spec.Parameters, at.Child("parameters"))...)
	}
	return errs
}

func validateParameters(p *networkingv1.IngressClassParametersReference, at *field.Path) (errs field.ErrorList) {
	if p.APIGroup != nil {
		for _, msg := range validation.IsDNS1123Subdomain(*p.APIGroup) {
			errs = append(errs, field.Invalid(at.Child("apiGroup"), *p.APIGroup, msg))
		}
	}
	errs = append(errs, Segment(p.Kind, at.Child("kind"))...)
	errs = append(errs, Segment(p.Name, at.Child("name"))...)
	const cluster, namespace = networkingv1.IngressClassParametersReferenceScopeCluster, networkingv1.IngressClassParametersReferenceScopeNamespace
	in := at.Child("namespace")
	switch {
	case p.Scope == nil:
		errs = append(errs, field.Required(at.Child("scope"), ""))
	case *p.Scope == namespace && p.Namespace == nil:
		errs = append(errs, field.Required(in, "`parameters.scope` is set to 'Namespace'"))
	case *p.Scope == namespace:
		for _, msg := range apivalidation.ValidateNamespaceName(*p.Namespace, false) {
			errs = append(errs, field.Invalid(in, *p.Namespace, msg))
		}
	case *p.Scope == cluster && p.Namespace != nil:
		errs = append(errs, field.Forbidden(in, "`parameters.scope` is set to 'Cluster'"))
	case *p.Scope != cluster:
		errs = append(errs, field.NotSupported(at.Child("scope"), *p.Scope, []string{cluster, namespace}))
	}
	return errs
}

// Segment requires a part of a path of the API: the kind or the name of an object that somebody else defines.
func Segment(s string, at *field.Path) (errs field.ErrorList) {
	if s == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	for _, msg := range content.IsPathSegmentName(s) {
		errs = append(errs, field.Invalid(at, s, msg))
	}
	return errs
}
