package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/admission"
	helpers "k8s.io/component-helpers/storage/volume"

	"monopod.dev/monopod/internal/pods"
)

// The finalizers of volumes, claims and classes of volumes' attributes, which a controller takes away when nothing uses them any more.
const (
	VolumeFinalizer     = "kubernetes.io/pv-protection"
	ClaimFinalizer      = "kubernetes.io/pvc-protection"
	AttributesFinalizer = "kubernetes.io/vac-protection"
)

// InUse keeps new volumes, claims and classes of attributes from going while something uses them.
type InUse struct{}

var _ admission.MutationInterface = InUse{}

// Handles implements admission.Interface.
func (InUse) Handles(op admission.Operation) bool { return op == admission.Create }

// Admit implements admission.MutationInterface.
func (InUse) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" {
		return nil
	}
	protect := func(m *metav1.ObjectMeta, finalizer string) {
		if !slices.Contains(m.Finalizers, finalizer) {
			m.Finalizers = append(m.Finalizers, finalizer)
		}
	}
	switch obj := a.GetObject().(type) {
	case *corev1.PersistentVolume:
		protect(&obj.ObjectMeta, VolumeFinalizer)
	case *corev1.PersistentVolumeClaim:
		protect(&obj.ObjectMeta, ClaimFinalizer)
	case *storagev1.VolumeAttributesClass:
		protect(&obj.ObjectMeta, AttributesFinalizer)
	}
	return nil
}

// Claims gives a new claim that names no class the one that is the default, if there is one, lets claims grow whose class says so, and holds what they ask for
// against the limit ranges of the namespace.
type Claims struct {
	// Classes are the storage classes.
	Classes Reader
	Ranges  LimitRangeLister
}

var (
	_ admission.MutationInterface   = Claims{}
	_ admission.ValidationInterface = Claims{}
)

// Handles implements admission.Interface.
func (Claims) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update
}

// Admit implements admission.MutationInterface.
func (c Claims) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	claim, ok := a.GetObject().(*corev1.PersistentVolumeClaim)
	if !ok || a.GetOperation() != admission.Create || a.GetSubresource() != "" {
		return nil
	}
	if helpers.PersistentVolumeClaimHasClass(claim) {
		return nil
	}
	list, err := c.Classes.List(ctx, &metainternalversion.ListOptions{ResourceVersion: "0"}) // from the cache
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	var classes []*storagev1.StorageClass
	items := list.(*storagev1.StorageClassList).Items
	for i := range items {
		classes = append(classes, &items[i])
	}
	if class := pods.DefaultStorageClass(classes); class != nil {
		claim.Spec.StorageClassName = new(class.Name)
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (c Claims) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	claim, ok := a.GetObject().(*corev1.PersistentVolumeClaim)
	if !ok || a.GetSubresource() != "" {
		return nil
	}
	if old, ok := a.GetOldObject().(*corev1.PersistentVolumeClaim); ok {
		if !grows(claim, old) {
			return nil
		}
		if err := c.mayGrow(ctx, a, claim, old); err != nil {
			return err
		}
	}
	ranges, err := c.Ranges.LimitRanges(ctx, a.GetNamespace())
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("list the LimitRanges of %s: %w", a.GetNamespace(), err))
	}
	var errs []error
	for i := range ranges {
		errs = append(errs, exceedsForClaims(&ranges[i], &claim.Spec.Resources)...)
	}
	if len(errs) > 0 {
		return admission.NewForbidden(a, utilerrors.NewAggregate(errs))
	}
	return nil
}

// mayGrow: the claim has a volume, of a class whose volumes grow.
func (c Claims) mayGrow(ctx context.Context, a admission.Attributes, claim, old *corev1.PersistentVolumeClaim) error {
	if old.Status.Phase != corev1.ClaimBound {
		return admission.NewForbidden(a, errors.New("Only bound persistent volume claims can be expanded")) //nolint:staticcheck // upstream's words
	}
	class := helpers.GetPersistentVolumeClaimClass(claim)
	if class != "" && class == helpers.GetPersistentVolumeClaimClass(old) {
		obj, err := c.Classes.Get(ctx, class, &metav1.GetOptions{ResourceVersion: "0"})
		switch {
		case err == nil:
			if may := obj.(*storagev1.StorageClass).AllowVolumeExpansion; may != nil && *may {
				return nil
			}
		case !apierrors.IsNotFound(err):
			return apierrors.NewInternalError(err)
		}
	}
	return admission.NewForbidden(a, errors.New("only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"))
}

func grows(claim, old *corev1.PersistentVolumeClaim) bool {
	is, was := claim.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
	return is.Cmp(was) > 0
}
