// Package namespace serves the resource namespaces of core/v1 and its subresources status and finalize.
//
// A namespace is deleted in three steps. Deletion marks it: deletionTimestamp is set, its phase is Terminating, and from
// then on nothing is created in it. Somebody empties it (package controllers/namespace, or upstream's controller) and then takes the
// finalizer "kubernetes" out of spec.finalizers through the subresource finalize. The update that takes the last
// finalizer out removes the object.
package namespace

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

// Resource is the resource namespaces: their metadata may change, spec and status have writers of their own.
func Resource() resource.Of[*corev1.Namespace, *corev1.NamespaceList] {
	r := resource.Of[*corev1.Namespace, *corev1.NamespaceList]{
		Plural: "namespaces",
		Short:  []string{"ns"},
		ReadBy: resource.Viewer,
		Honours: apifields.Table{
			reflect.TypeFor[corev1.Namespace]():     apifields.All("Spec").And(apifields.Left, "Status"),
			reflect.TypeFor[corev1.NamespaceSpec](): apifields.All("Finalizers"),
		},
		Default: label,
		Prepare: func(ns *corev1.Namespace) {
			label(ns) // its name may have been generated
			ns.Status.Phase = corev1.NamespaceActive
			if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
				ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
			}
		},
		PrepareUpdate: func(ns, old *corev1.Namespace) { ns.Spec = old.Spec },
		Names:         apivalidation.ValidateNamespaceName,
		Create:        validate,
		Status:        &resource.Status[*corev1.Namespace]{Update: validateStatusUpdate},
		Fields: func(ns *corev1.Namespace) fields.Set {
			// v1 clients have selected by "name" too.
			return fields.Set{"status.phase": string(ns.Status.Phase), "name": ns.Name}
		},
		Columns: []resource.Column[*corev1.Namespace]{
			{Name: "Name"},
			{Name: "Status", Doc: "The status of the namespace", Value: func(ns *corev1.Namespace) any { return string(ns.Status.Phase) }},
			{Name: "Age"},
		},
		Store: func(s *genericregistry.Store) {
			s.ReturnDeletedObject = true
			s.ShouldDeleteDuringUpdate = removable
		},
		REST: func(s *genericregistry.Store) rest.Storage { return &REST{s} },
	}
	r.Parts = map[string]resource.Part{"finalize": {Storage: r.PartREST(resource.Rules[*corev1.Namespace]{
		Prepare: func(ns, old *corev1.Namespace) { ns.Status = old.Status },
		Update:  func(ns, _ *corev1.Namespace) field.ErrorList { return validate(ns) },
		Resets:  []string{"status"},
	})}}
	return r
}

// label gives a namespace the label by which selectors find it by name (core/v1, LabelMetadataName).
func label(ns *corev1.Namespace) {
	if ns.Name == "" {
		return // it will be generated
	}
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[corev1.LabelMetadataName] = ns.Name
}
