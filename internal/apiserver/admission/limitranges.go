package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/admission"

	"monopod.dev/monopod/internal/pods"
	"monopod.dev/monopod/internal/pods/allocated"
)

// LimitRangeLister lists the limit ranges of a namespace.
type LimitRangeLister interface {
	LimitRanges(ctx context.Context, namespace string) ([]corev1.LimitRange, error)
}

// LimitRanges applies the limit ranges of a namespace to its new pods: containers that ask for nothing get what the ranges say (and an annotation tells
// that they did), and a pod that asks for what they do not allow is refused.
type LimitRanges struct {
	Ranges LimitRangeLister
}

var (
	_ admission.MutationInterface   = LimitRanges{}
	_ admission.ValidationInterface = LimitRanges{}
)

// limitedAnnotation tells what of a pod's resources limit ranges have set.
const limitedAnnotation = "kubernetes.io/limit-ranger"

// Handles implements admission.Interface. What a pod asks for cannot be changed later.
func (LimitRanges) Handles(op admission.Operation) bool { return op == admission.Create }

// Admit implements admission.MutationInterface.
func (l LimitRanges) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	return l.each(ctx, a, func(r *corev1.LimitRange, pod *corev1.Pod) error {
		giveDefaults(r, pod)
		return nil
	})
}

// Validate implements admission.ValidationInterface.
func (l LimitRanges) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	return l.each(ctx, a, func(r *corev1.LimitRange, pod *corev1.Pod) error {
		if err := utilerrors.NewAggregate(exceeds(r, pod)); err != nil {
			return admission.NewForbidden(a, err)
		}
		return nil
	})
}

func (l LimitRanges) each(ctx context.Context, a admission.Attributes, do func(*corev1.LimitRange, *corev1.Pod) error) error {
	pod := newPod(a)
	if pod == nil {
		return nil
	}
	ranges, err := l.Ranges.LimitRanges(ctx, a.GetNamespace())
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("list the LimitRanges of %s: %w", a.GetNamespace(), err))
	}
	for i := range ranges {
		if err := do(&ranges[i], pod); err != nil {
			return err
		}
	}
	return nil
}

// giveDefaults gives a pod's containers what they do not say, and tells so in an annotation.
func giveDefaults(r *corev1.LimitRange, pod *corev1.Pod) {
	var told []string
	for i := range r.Spec.Limits {
		item := &r.Spec.Limits[i]
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		for role, c := range pods.Containers(&pod.Spec) {
			word := "container "
			if role.AmongInit() {
				word = "init container "
			}
			if added := add(&c.Resources.Requests, item.DefaultRequest); len(added) > 0 {
				told = append(told, strings.Join(added, ", ")+" request for "+word+c.Name)
			}
			if added := add(&c.Resources.Limits, item.Default); len(added) > 0 {
				told = append(told, strings.Join(added, ", ")+" limit for "+word+c.Name)
			}
		}
	}
	if len(told) == 0 {
		return
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[limitedAnnotation] = "LimitRanger plugin set: " + strings.Join(told, "; ")
}

// add adds to a list what it lacks of another one, and tells the names.
func add(to *corev1.ResourceList, from corev1.ResourceList) (added []string) {
	for _, name := range slices.Sorted(maps.Keys(from)) {
		if _, ok := (*to)[name]; ok {
			continue
		}
		if *to == nil {
			*to = corev1.ResourceList{}
		}
		(*to)[name] = from[name].DeepCopy()
		added = append(added, string(name))
	}
	return added
}

// exceeds is all that a pod asks for against a limit range.
func exceeds(r *corev1.LimitRange, pod *corev1.Pod) (errs []error) {
	for i := range r.Spec.Limits {
		item := &r.Spec.Limits[i]
		switch item.Type {
		case corev1.LimitTypeContainer:
			for role, c := range pods.Containers(&pod.Spec) {
				if role != pods.Ephemeral {
					errs = append(errs, exceedsItem(item, allocated.Of(pod).Container(c.Name))...)
				}
			}
		case corev1.LimitTypePod:
			errs = append(errs, exceedsItem(item, allocated.Of(pod).Stated())...)
		}
	}
	return errs
}

// exceedsForClaims is all that a claim asks for against a limit range. It has no limits: what it requests is held against both bounds.
func exceedsForClaims(r *corev1.LimitRange, has *corev1.VolumeResourceRequirements) (errs []error) {
	asks := corev1.ResourceRequirements{Requests: has.Requests, Limits: has.Requests}
	for i := range r.Spec.Limits {
		item := &r.Spec.Limits[i]
		if item.Type != corev1.LimitTypePersistentVolumeClaim {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(item.Min)) {
			if err := askedOf(item.Type, asks, name, item.Min[name]).tooLittle(); err != nil {
				errs = append(errs, err)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(item.Max)) {
			a := askedOf(item.Type, asks, name, item.Max[name])
			switch why := fmt.Sprintf("maximum %s usage per %s is %s", a.name, a.by, &a.bound); {
			case !a.requested:
				errs = append(errs, fmt.Errorf("%s.  No request is specified", why))
			case a.request.Cmp(a.bound) > 0:
				errs = append(errs, fmt.Errorf("%s, but request is %s", why, &a.request))
			}
		}
	}
	return errs
}

// exceedsItem is what is against one item.
func exceedsItem(item *corev1.LimitRangeItem, has corev1.ResourceRequirements) (errs []error) {
	each := func(bounds corev1.ResourceList, check func(asked) error) {
		for _, name := range slices.Sorted(maps.Keys(bounds)) {
			if err := check(askedOf(item.Type, has, name, bounds[name])); err != nil {
				errs = append(errs, err)
			}
		}
	}
	each(item.Min, asked.tooLittle)
	each(item.Max, asked.tooMuch)
	each(item.MaxLimitRequestRatio, asked.tooFarApart)
	return errs
}

// asked is what is asked for of one resource, and the bound that it is held against. The words of its errors are those of Kubernetes, which tools look for.
type asked struct {
	by                    corev1.LimitType
	name                  corev1.ResourceName
	request, limit, bound resource.Quantity
	requested, limited    bool
}

func askedOf(by corev1.LimitType, has corev1.ResourceRequirements, name corev1.ResourceName, bound resource.Quantity) asked {
	a := asked{by: by, name: name, bound: bound}
	a.request, a.requested = has.Requests[name]
	a.limit, a.limited = has.Limits[name]
	return a
}

func (a asked) tooLittle() error {
	why := fmt.Sprintf("minimum %s usage per %s is %s", a.name, a.by, &a.bound)
	switch {
	case !a.requested:
		return fmt.Errorf("%s.  No request is specified", why)
	case a.request.Cmp(a.bound) < 0:
		return fmt.Errorf("%s, but request is %s", why, &a.request)
	case a.limited && a.limit.Cmp(a.bound) < 0:
		return fmt.Errorf("%s, but limit is %s", why, &a.limit)
	}
	return nil
}

func (a asked) tooMuch() error {
	why := fmt.Sprintf("maximum %s usage per %s is %s", a.name, a.by, &a.bound)
	switch {
	case !a.limited:
		return fmt.Errorf("%s.  No limit is specified", why)
	case a.limit.Cmp(a.bound) > 0:
		return fmt.Errorf("%s, but limit is %s", why, &a.limit)
	case a.requested && a.request.Cmp(a.bound) > 0:
		return fmt.Errorf("%s, but request is %s", why, &a.request)
	}
	return nil
}

func (a asked) tooFarApart() error {
	why := fmt.Sprintf("%s max limit to request ratio per %s is %s", a.name, a.by, &a.bound)
	switch {
	case a.request.IsZero():
		return fmt.Errorf("%s, but no request is specified or request is 0", why)
	case a.limit.IsZero():
		return fmt.Errorf("%s, but no limit is specified or limit is 0", why)
	}
	if ratio := a.limit.AsApproximateFloat64() / a.request.AsApproximateFloat64(); ratio > a.bound.AsApproximateFloat64() {
		return fmt.Errorf("%s, but provided ratio is %f", why, ratio)
	}
	return nil
}
