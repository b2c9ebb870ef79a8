package admission

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apiserver/pkg/admission"

	"monopod.dev/monopod/internal/apiserver/registry/ingress"
)

// IngressClass gives a new Ingress that names no class the one that is the default, if there is one.
type IngressClass struct {
	// Classes are the ingress classes.
	Classes Reader
}

var _ admission.MutationInterface = IngressClass{}

// Handles implements admission.Interface.
func (IngressClass) Handles(op admission.Operation) bool { return op == admission.Create }

// Admit implements admission.MutationInterface.
func (c IngressClass) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != networkingv1.Resource("ingresses") || a.GetSubresource() != "" {
		return nil
	}
	i, ok := a.GetObject().(*networkingv1.Ingress)
	if !ok || i.Spec.IngressClassName != nil {
		return nil
	}
	if _, named := i.Annotations[ingress.ClassAnnotation]; named {
		return nil
	}
	list, err := c.Classes.List(ctx, &metainternalversion.ListOptions{ResourceVersion: "0"}) // from the cache
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if class := defaultIngressClass(list.(*networkingv1.IngressClassList).Items); class != "" {
		i.Spec.IngressClassName = &class
	}
	return nil
}

// defaultIngressClass is the newest of the default classes, of those of one time the first by name; empty: there is none.
func defaultIngressClass(all []networkingv1.IngressClass) string {
	var found *networkingv1.IngressClass
	for i := range all {
		c := &all[i]
		if c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] != "true" {
			continue
		}
		if found == nil || found.CreationTimestamp.Before(&c.CreationTimestamp) ||
			found.CreationTimestamp.Equal(&c.CreationTimestamp) && c.Name < found.Name {
			found = c
		}
	}
	if found == nil {
		return ""
	}
	return found.Name
}
