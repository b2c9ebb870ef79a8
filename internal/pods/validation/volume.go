package validation

import (
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods"
)

// validateVolumes returns the volumes by their names, for those who refer to them.
func validateVolumes(volumes []corev1.Volume, at *field.Path) (names map[string]*corev1.Volume, errs field.ErrorList) {
	names = map[string]*corev1.Volume{}
	for i := range volumes {
		v, at := &volumes[i], at.Index(i)
		errs = append(errs, requiredName(v.Name, at.Child("name"))...)
		if v.Name != "" && names[v.Name] != nil {
			errs = append(errs, field.Duplicate(at.Child("name"), v.Name))
		}
		names[v.Name] = v
		errs = append(errs, validateVolumeSource(&v.VolumeSource, at)...)
	}
	return names, errs
}

// volumeSources validate the sources that are honoured, each below the field that has the name of its kind.
var volumeSources = map[pods.VolumeKind]func(s *corev1.VolumeSource, at *field.Path) field.ErrorList{
	pods.EmptyDirVolume: func(s *corev1.VolumeSource, at *field.Path) field.ErrorList { return validateEmptyDir(s.EmptyDir, at) },
	pods.HostPathVolume: func(s *corev1.VolumeSource, at *field.Path) field.ErrorList { return HostPath(s.HostPath, at) },
	pods.SecretVolume: func(s *corev1.VolumeSource, at *field.Path) field.ErrorList {
		errs := validateObjectName(s.Secret.SecretName, at.Child("secretName"))
		return append(errs, validateFiles(s.Secret.Items, s.Secret.DefaultMode, s.Secret.DefaultUser, at)...)
	},
	pods.ConfigMapVolume: func(s *corev1.VolumeSource, at *field.Path) field.ErrorList {
		errs := validateObjectName(s.ConfigMap.Name, at.Child("name"))
		return append(errs, validateFiles(s.ConfigMap.Items, s.ConfigMap.DefaultMode, s.ConfigMap.DefaultUser, at)...)
	},
	pods.DownwardAPIVolume: func(s *corev1.VolumeSource, at *field.Path) field.ErrorList {
		errs := validateDefaults(s.DownwardAPI.DefaultMode, s.DownwardAPI.DefaultUser, at)
		return append(errs, validateDownwardFiles(s.DownwardAPI.Items, at.Child("items"))...)
	},
	pods.ProjectedVolume: func(s *corev1.VolumeSource, at *field.Path) field.ErrorList {
		return validateProjected(s.Projected, at)
	},
	pods.ImageVolume: func(s *corev1.VolumeSource, at *field.Path) field.ErrorList { return validateImageVolume(s.Image, at) },
	pods.NFSVolume: func(s *corev1.VolumeSource, at *field.Path) (errs field.ErrorList) {
		if s.NFS.Server == "" {
			errs = append(errs, field.Required(at.Child("server"), ""))
		}
		switch {
		case s.NFS.Path == "":
			errs = append(errs, field.Required(at.Child("path"), ""))
		case !path.IsAbs(s.NFS.Path):
			errs = append(errs, field.Invalid(at.Child("path"), s.NFS.Path, "must be an absolute path"))
		}
		return errs
	},
	pods.ClaimVolume: func(s *corev1.VolumeSource, at *field.Path) field.ErrorList {
		return validateClaimVolume(s.PersistentVolumeClaim, at)
	},
	pods.EphemeralVolume: func(s *corev1.VolumeSource, at *field.Path) field.ErrorList {
		return validateEphemeralVolume(s.Ephemeral, at)
	},
}

// validateVolumeSource is about the sources that are honoured. The others are refused by name before, and a volume
// without any is an emptyDir by default.
func validateVolumeSource(s *corev1.VolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	sources := 0
	// As upstream, the first source is validated, and the others are one too many.
	for kind := range pods.KindsOf(s) {
		validate, honoured := volumeSources[kind]
		switch below := at.Child(string(kind)); {
		case !honoured:
		case sources > 0:
			errs = append(errs, field.Forbidden(below, "may not specify more than 1 volume type"))
		default:
			sources++
			errs = append(errs, validate(s, below)...)
		}
	}
	return errs
}

func validateEmptyDir(e *corev1.EmptyDirVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch e.Medium {
	case corev1.StorageMediumDefault, corev1.StorageMediumMemory:
	default:
		errs = append(errs, field.NotSupported(at.Child("medium"), e.Medium,
			[]corev1.StorageMedium{corev1.StorageMediumDefault, corev1.StorageMediumMemory}))
	}
	if limit := e.SizeLimit; limit != nil && limit.Sign() < 0 {
		errs = append(errs, field.Invalid(at.Child("sizeLimit"), limit.String(), "must be greater than or equal to 0"))
	}
	return errs
}

func validateImageVolume(s *corev1.ImageVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Reference == "" {
		errs = append(errs, field.Required(at.Child("reference"), ""))
	}
	return append(errs, oneOf(s.PullPolicy, at.Child("pullPolicy"), corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
}

// HostPath tells what is wrong with a path of the host.
func HostPath(h *corev1.HostPathVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case h.Path == "":
		errs = append(errs, field.Required(at.Child("path"), ""))
	case hasBackstep(h.Path):
		errs = append(errs, field.Invalid(at.Child("path"), h.Path, "must not contain '..'"))
	}
	if h.Type != nil && *h.Type != corev1.HostPathUnset {
		errs = append(errs, oneOf(*h.Type, at.Child("type"),
			corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory, corev1.HostPathFileOrCreate, corev1.HostPathFile,
			corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev)...)
	}
	return errs
}

// validateFiles is about the files that a configMap or secret volume makes of keys.
func validateFiles(items []corev1.KeyToPath, defaultMode *int32, defaultUser *int64, at *field.Path) field.ErrorList {
	return append(validateDefaults(defaultMode, defaultUser, at), validateItems(items, at.Child("items"))...)
}

func validateItems(items []corev1.KeyToPath, at *field.Path) (errs field.ErrorList) {
	for i := range items {
		item, at := &items[i], at.Index(i)
		if item.Key == "" {
			errs = append(errs, field.Required(at.Child("key"), ""))
		} else {
			errs = append(errs, invalidIf(true, item.Key, at.Child("key"), validation.IsConfigMapKey)...)
		}
		errs = append(errs, validateFilePath(item.Path, at.Child("path"))...)
		errs = append(errs, validateMode(item.Mode, at.Child("mode"))...)
		errs = append(errs, validateUser(item.User, at.Child("user"))...)
	}
	return errs
}

// validateFilePath is about where a file is in its volume.
func validateFilePath(name string, at *field.Path) field.ErrorList {
	switch {
	case name == "":
		return field.ErrorList{field.Required(at, "")}
	case path.IsAbs(name):
		return field.ErrorList{field.Invalid(at, name, "must be a relative path")}
	case hasBackstep(name):
		return field.ErrorList{field.Invalid(at, name, "must not contain '..'")}
	case strings.HasPrefix(name, ".."):
		// The agent keeps the versions of a volume under such names.
		return field.ErrorList{field.Invalid(at, name, "must not start with '..'")}
	}
	return nil
}

// validateDefaults is about what holds for files of which nothing is said.
func validateDefaults(mode *int32, user *int64, at *field.Path) field.ErrorList {
	return append(validateMode(mode, at.Child("defaultMode")), validateUser(user, at.Child("defaultUser"))...)
}

// validateUser is about whose a file is.
func validateUser(user *int64, at *field.Path) (errs field.ErrorList) {
	if user == nil {
		return nil
	}
	for _, message := range validation.IsValidUserID(*user) {
		errs = append(errs, field.Invalid(at, *user, message))
	}
	return errs
}

func validateMode(mode *int32, at *field.Path) field.ErrorList {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		return field.ErrorList{field.Invalid(at, *mode, "must be a number between 0 and 0777 (octal), both inclusive")}
	}
	return nil
}

func hasBackstep(name string) bool {
	for element := range strings.SplitSeq(name, "/") {
		if element == ".." {
			return true
		}
	}
	return false
}
