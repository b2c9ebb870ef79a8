package csidriver

import (
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// minPeriod is how often, in seconds, a driver may be asked at most for what it can attach.
	minPeriod = 10
	// minLife and maxLife are how many seconds a token may be good for.
	minLife = 600
	maxLife = 1 << 32
)

func validate(d *storagev1.CSIDriver) field.ErrorList {
	return validateSpec(&d.Spec, field.NewPath("spec"))
}

// validateUpdate: how volumes are attached and what they are for does not change. That the path of attachRequired is another one than in the API is upstream's.
func validateUpdate(d, old *storagev1.CSIDriver) field.ErrorList {
	errs := validate(d)
	errs = append(errs, apivalidation.ValidateImmutableField(d.Spec.AttachRequired, old.Spec.AttachRequired, field.NewPath("spec", "attachedRequired"))...)
	return append(errs, apivalidation.ValidateImmutableField(d.Spec.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes, field.NewPath("spec", "volumeLifecycleModes"))...)
}

func validateSpec(s *storagev1.CSIDriverSpec, at *field.Path) (errs field.ErrorList) {
	for _, one := range []struct {
		name  string
		value *bool
	}{
		{"attachedRequired", s.AttachRequired}, {"podInfoOnMount", s.PodInfoOnMount}, {"storageCapacity", s.StorageCapacity}, {"seLinuxMount", s.SELinuxMount},
		{"preventPodSchedulingIfMissing", s.PreventPodSchedulingIfMissing},
	} {
		if one.value == nil {
			errs = append(errs, field.Required(at.Child(one.name), ""))
		}
	}
	if s.FSGroupPolicy != nil {
		errs = append(errs, oneOf(*s.FSGroupPolicy, at.Child("fsGroupPolicy"),
			storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)...)
	}
	errs = append(errs, validateTokens(s.TokenRequests, at.Child("tokenRequests"))...)
	for _, mode := range s.VolumeLifecycleModes {
		errs = append(errs, oneOf(mode, at.Child("volumeLifecycleModes"), storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral)...)
	}
	if p := s.NodeAllocatableUpdatePeriodSeconds; p != nil && *p < minPeriod {
		errs = append(errs, field.Invalid(at.Child("nodeAllocatableUpdatePeriodSeconds"), *p, "must be greater than or equal to 10 seconds"))
	}
	if in := s.ServiceAccountTokenInSecrets; in != nil && len(s.TokenRequests) == 0 {
		errs = append(errs, field.Invalid(at.Child("serviceAccountTokenInSecrets"), *in, "serviceAccountTokenInSecrets is set but no tokenRequests are specified"))
	}
	return errs
}

// validateTokens is about the tokens that a driver gets of a pod: one for each audience, one of which may be the API server.
func validateTokens(requests []storagev1.TokenRequest, at *field.Path) (errs field.ErrorList) {
	seen := sets.New[string]()
	for i, r := range requests {
		at := at.Index(i)
		if seen.Has(r.Audience) {
			errs = append(errs, field.Duplicate(at.Child("audience"), r.Audience))
			continue
		}
		seen.Insert(r.Audience)
		switch life, at := r.ExpirationSeconds, at.Child("expirationSeconds"); {
		case life == nil:
		case *life < minLife:
			errs = append(errs, field.Invalid(at, *life, "may not specify a duration less than 10 minutes"))
		case *life > maxLife:
			errs = append(errs, field.Invalid(at, *life, "may not specify a duration larger than 2^32 seconds"))
		}
	}
	return errs
}

func oneOf[S ~string](value S, at *field.Path, known ...S) field.ErrorList {
	if slices.Contains(known, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, value, known)}
}
