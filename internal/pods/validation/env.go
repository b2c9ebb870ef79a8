package validation

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods"
)

// envFieldPaths returns the fields of a pod that an environment variable may take its value from. Beside them are the
// single labels and annotations: metadata.labels['KEY'].
func envFieldPaths() []string {
	return []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
}

func validateEnv(env []corev1.EnvVar, volumes map[string]*corev1.Volume, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range env {
		e, at := &env[i], at.Index(i)
		if e.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		} else {
			errs = append(errs, invalidIf(true, e.Name, at.Child("name"), validation.IsRelaxedEnvVarName)...)
		}
		if e.ValueFrom != nil {
			errs = append(errs, validateValueFrom(e, volumes, at.Child("valueFrom"))...)
		}
	}
	return errs
}

func validateValueFrom(e *corev1.EnvVar, volumes map[string]*corev1.Volume, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	from, sources := e.ValueFrom, 0
	if ref := from.FieldRef; ref != nil {
		sources++
		errs = append(errs, validateFieldRef(ref, envFieldPaths(), at.Child("fieldRef"))...)
	}
	if ref := from.ConfigMapKeyRef; ref != nil {
		sources++
		errs = append(errs, validateKeyRef(ref.Name, ref.Key, at.Child("configMapKeyRef"))...)
	}
	if ref := from.SecretKeyRef; ref != nil {
		sources++
		errs = append(errs, validateKeyRef(ref.Name, ref.Key, at.Child("secretKeyRef"))...)
	}
	if ref := from.ResourceFieldRef; ref != nil {
		sources++
		errs = append(errs, validateResourceFieldRef(ref, at.Child("resourceFieldRef"))...)
	}
	if ref := from.FileKeyRef; ref != nil {
		sources++
		errs = append(errs, validateFileRef(ref, volumes, at.Child("fileKeyRef"))...)
	}
	switch {
	case e.Value != "" && sources > 0:
		errs = append(errs, field.Invalid(at, "", "may not be specified when `value` is not empty"))
	case sources == 0:
		errs = append(errs, field.Invalid(at, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"))
	case sources > 1:
		errs = append(errs, field.Invalid(at, "", "may not have more than one field specified at a time"))
	}
	return errs
}

// validateFieldRef is about a reference to a field of the pod, of those allowed.
func validateFieldRef(ref *corev1.ObjectFieldSelector, allowed []string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, oneOf(ref.APIVersion, at.Child("apiVersion"), "v1")...)
	switch base, key, _ := pods.Subscript(ref.FieldPath); base {
	case "metadata.labels":
		return append(errs, invalidIf(true, key, at.Child("fieldPath"), validation.IsQualifiedName)...)
	case "metadata.annotations":
		return append(errs, invalidIf(true, strings.ToLower(key), at.Child("fieldPath"), validation.IsQualifiedName)...)
	}
	return append(errs, oneOf(ref.FieldPath, at.Child("fieldPath"), allowed...)...)
}

func validateKeyRef(name, key string, at *field.Path) field.ErrorList {
	errs := validateObjectName(name, at.Child("name"))
	if key == "" {
		return append(errs, field.Required(at.Child("key"), ""))
	}
	return append(errs, invalidIf(true, key, at.Child("key"), validation.IsConfigMapKey)...)
}

// validateFileRef is about a key in a file that other containers of the pod write into an emptyDir.
func validateFileRef(ref *corev1.FileKeySelector, volumes map[string]*corev1.Volume, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if ref.Key == "" {
		errs = append(errs, field.Required(at.Child("key"), ""))
	} else {
		errs = append(errs, invalidIf(true, ref.Key, at.Child("key"), validation.IsRelaxedEnvVarName)...)
	}
	switch v := volumes[ref.VolumeName]; {
	case ref.VolumeName == "":
		errs = append(errs, field.Required(at.Child("volumeName"), ""))
	case v == nil:
		errs = append(errs, field.NotFound(at.Child("volumeName"), ref.VolumeName))
	case pods.KindOf(&v.VolumeSource) != pods.EmptyDirVolume:
		errs = append(errs, field.Invalid(at.Child("volumeName"), ref.VolumeName, "referenced volume must be of type emptyDir"))
	}
	switch {
	case ref.Path == "":
		errs = append(errs, field.Required(at.Child("path"), ""))
	case hasBackstep(ref.Path):
		errs = append(errs, field.Invalid(at.Child("path"), ref.Path, "must not contain '..'"))
	}
	return errs
}

// validateObjectName is about the name of a ConfigMap or Secret that a pod refers to.
func validateObjectName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return invalidIf(true, name, at, validation.IsDNS1123Subdomain)
}

func validateEnvFrom(sources []corev1.EnvFromSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range sources {
		s, at := &sources[i], at.Index(i)
		errs = append(errs, invalidIf(s.Prefix != "", s.Prefix, at.Child("prefix"), validation.IsRelaxedEnvVarName)...)
		if s.ConfigMapRef != nil {
			errs = append(errs, validateObjectName(s.ConfigMapRef.Name, at.Child("configMapRef", "name"))...)
		}
		if s.SecretRef != nil {
			errs = append(errs, validateObjectName(s.SecretRef.Name, at.Child("secretRef", "name"))...)
		}
		switch {
		case s.ConfigMapRef == nil && s.SecretRef == nil:
			errs = append(errs, field.Invalid(at, "", "must specify one of: `configMapRef` or `secretRef`"))
		case s.ConfigMapRef != nil && s.SecretRef != nil:
			errs = append(errs, field.Invalid(at, "", "may not have more than one field specified at a time"))
		}
	}
	return errs
}
