package workload

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"monopod.dev/monopod/internal/apiserver/resource"
)

// Scalable says where the objects T have what their subresource scale shows. All have the number of replicas that is wanted at spec.replicas.
type Scalable[T resource.Object] struct {
	// Version is that of the objects.
	Version schema.GroupVersion
	// Replicas is the field spec.replicas. Defaults have set it.
	Replicas func(obj T) **int32
	// Pods are those that there are: how many, and the selector that finds them. The error is for a selector that cannot be read.
	Pods func(obj T) (int32, labels.Selector, error)
}

// Part is the subresource scale: a Scale of autoscaling/v1 that is read from an object and whose replicas are written to it.
func (s Scalable[T]) Part() resource.Part {
	return resource.Part{
		Storage: func(store *genericregistry.Store) rest.Storage { return &ScaleREST[T]{s, store} },
		Rights:  []resource.Right{{Role: resource.Viewer, Verbs: resource.ReadVerbs}, {Role: resource.Editor, Verbs: resource.WriteVerbs}},
	}
}

// ScaleREST is the storage of the subresource scale.
type ScaleREST[T resource.Object] struct {
	of    Scalable[T]
	store *genericregistry.Store
}

var (
	_ rest.Patcher                  = &ScaleREST[*metav1.PartialObjectMetadata]{}
	_ rest.GroupVersionKindProvider = &ScaleREST[*metav1.PartialObjectMetadata]{}
	_ rest.TableConvertor           = &ScaleREST[*metav1.PartialObjectMetadata]{}
	_ rest.UpdatedObjectInfo        = scaled[*metav1.PartialObjectMetadata]{}
)

// New implements rest.Storage.
func (*ScaleREST[T]) New() runtime.Object { return &autoscalingv1.Scale{} }

// Destroy implements rest.Storage. The resource destroys the store.
func (*ScaleREST[T]) Destroy() {}

// GroupVersionKind implements rest.GroupVersionKindProvider: a Scale is of a group of its own.
func (*ScaleREST[T]) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return autoscalingv1.SchemeGroupVersion.WithKind("Scale")
}

// Get implements rest.Getter.
func (r *ScaleREST[T]) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := resource.Get[T](ctx, r.store, r.store.SingularQualifiedResource.Resource, name, options)
	if err != nil {
		return nil, err
	}
	return r.scale(obj)
}

// Update implements rest.Updater: the object gets the replicas of the Scale, by the rules for its own updates. It never comes into being by this way.
func (r *ScaleREST[T]) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	obj, _, err := r.store.Update(ctx, name, scaled[T]{objInfo, r, name}, r.forCreate(createValidation), r.forUpdate(updateValidation), false, options)
	if err != nil {
		return nil, false, err
	}
	scale, err := r.scale(obj)
	return scale, false, err
}

// ConvertToTable implements rest.TableConvertor.
func (*ScaleREST[T]) ConvertToTable(ctx context.Context, object, options runtime.Object) (*metav1.Table, error) {
	spec, status := autoscalingv1.ScaleSpec{}.SwaggerDoc(), autoscalingv1.ScaleStatus{}.SwaggerDoc()
	return resource.NewTable([]resource.Column[*autoscalingv1.Scale]{
		{Name: "Name"},
		Count("Desired", spec["replicas"], func(s *autoscalingv1.Scale) int32 { return s.Spec.Replicas }),
		Count("Available", status["replicas"], func(s *autoscalingv1.Scale) int32 { return s.Status.Replicas }),
		{Name: "Age"},
	}, nil).ConvertToTable(ctx, object, options)
}

// scale is the Scale of an object. Nobody owns a field of it: see scaled.
func (r *ScaleREST[T]) scale(obj runtime.Object) (*autoscalingv1.Scale, error) {
	typed, ok := obj.(T)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("%s: a %T has no scale", r.store.DefaultQualifiedResource, obj))
	}
	replicas, selector, err := r.of.Pods(typed)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the selector of %s cannot be read: %v", typed.GetName(), err))
	}
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name: typed.GetName(), Namespace: typed.GetNamespace(), UID: typed.GetUID(),
			ResourceVersion: typed.GetResourceVersion(), CreationTimestamp: typed.GetCreationTimestamp(),
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: Wanted(*r.of.Replicas(typed))},
		Status: autoscalingv1.ScaleStatus{Replicas: replicas, Selector: selector.String()},
	}, nil
}

// forCreate and forUpdate let what judges Scales (admission) judge them, where the store has objects.
func (r *ScaleREST[T]) forCreate(judge rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		scale, err := r.scale(obj)
		if err != nil {
			return err
		}
		return judge(ctx, scale)
	}
}

func (r *ScaleREST[T]) forUpdate(judge rest.ValidateObjectUpdateFunc) rest.ValidateObjectUpdateFunc {
	return func(ctx context.Context, obj, old runtime.Object) error {
		scale, err := r.scale(obj)
		if err != nil {
			return err
		}
		was, err := r.scale(old)
		if err != nil {
			return err
		}
		return judge(ctx, scale, was)
	}
}

// scaled makes the object that is stored out of the change of its Scale.
type scaled[T resource.Object] struct {
	of   rest.UpdatedObjectInfo
	r    *ScaleREST[T]
	name string
}

// Preconditions implements rest.UpdatedObjectInfo.
func (s scaled[T]) Preconditions() *metav1.Preconditions { return s.of.Preconditions() }

// UpdatedObject implements rest.UpdatedObjectInfo: object, its Scale as it was, the Scale as it is to be, object. Who owns the object's replicas owns those
// of the Scale, and the other way round.
func (s scaled[T]) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	resourceScale := schema.GroupResource{Group: s.r.of.Version.Group, Resource: s.r.store.DefaultQualifiedResource.Resource + "/scale"}
	obj, ok := old.DeepCopyObject().(T)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("%s %s: the store holds a %T", resourceScale, s.name, old))
	}
	if obj.GetResourceVersion() == "" { // an empty one stands for what there is not
		return nil, apierrors.NewNotFound(resourceScale, s.name)
	}
	owners := managedfields.NewScaleHandler(obj.GetManagedFields(), s.r.of.Version, managedfields.ResourcePathMappings{
		s.r.of.Version.String(): fieldpath.MakePathOrDie("spec", "replicas"),
	})
	was, err := s.r.scale(obj)
	if err != nil {
		return nil, err
	}
	if was.ManagedFields, err = owners.ToSubresource(); err != nil {
		return nil, fmt.Errorf("managed fields of %s %s: %w", resourceScale, s.name, err)
	}
	changed, err := s.of.UpdatedObject(ctx, was)
	if err != nil {
		return nil, err
	}
	scale, ok := changed.(*autoscalingv1.Scale)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected a Scale of autoscaling/v1, found %T", changed))
	}
	if errs := validateScale(scale); len(errs) > 0 {
		return nil, apierrors.NewInvalid(autoscalingv1.SchemeGroupVersion.WithKind("Scale").GroupKind(), s.name, errs)
	}
	if scale.UID != "" && scale.UID != obj.GetUID() {
		return nil, apierrors.NewConflict(resourceScale, s.name, fmt.Errorf("the uid is %s, and the Scale is of %s: read it again", obj.GetUID(), scale.UID))
	}
	*s.r.of.Replicas(obj) = &scale.Spec.Replicas
	obj.SetResourceVersion(scale.ResourceVersion) // which the store compares
	entries, err := owners.ToParent(scale.ManagedFields)
	if err != nil {
		return nil, fmt.Errorf("managed fields of %s %s: %w", resourceScale, s.name, err)
	}
	obj.SetManagedFields(entries)
	return obj, nil
}

func validateScale(scale *autoscalingv1.Scale) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&scale.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	return append(errs, NotNegative(field.NewPath("spec"), Of("replicas", scale.Spec.Replicas))...)
}
