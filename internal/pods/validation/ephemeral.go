package validation

import (
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods"
	"monopod.dev/monopod/internal/pods/fields"
)

// notForEphemeral is what is said of a field that ephemeral containers do not have.
const notForEphemeral = "cannot be set for an Ephemeral Container"

// ofEphemeral are the fields that an ephemeral container has, by their names in Go, as the API wants it: what a pod's work depends on (ports, resources,
// probes) is nothing for one that is there to look at it.
func ofEphemeral() sets.Set[string] {
	return sets.New("Name", "Image", "Command", "Args", "WorkingDir", "EnvFrom", "Env", "VolumeMounts", "VolumeDevices", "TerminationMessagePath",
		"TerminationMessagePolicy", "ImagePullPolicy", "SecurityContext", "Stdin", "StdinOnce", "TTY")
}

// EphemeralContainers tells what is wrong with the ephemeral containers of a pod, with their defaults set, but for those that it had, by their names. path
// is that of the specification.
func EphemeralContainers(spec *corev1.PodSpec, had sets.Set[string], path *field.Path) (errs field.ErrorList) {
	list := path.Child("ephemeralContainers")
	volumes, _ := validateVolumes(spec.Volumes, path.Child("volumes"))
	names := sets.New[string]()
	for role, c := range pods.Containers(spec) {
		if role != pods.Ephemeral {
			names.Insert(c.Name)
		}
	}
	targets := names.Clone()
	for i := range spec.EphemeralContainers {
		c, at := &spec.EphemeralContainers[i], list.Index(i)
		switch {
		case names.Has(c.Name):
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		case !had.Has(c.Name):
			errs = append(errs, requiredName(c.Name, at.Child("name"))...)
			errs = append(errs, validateEphemeral(c, spec, targets, volumes, at)...)
		}
		names.Insert(c.Name)
	}
	return append(errs, newNotHonoured(spec, had, path)...)
}

// newNotHonoured is notHonoured of the ephemeral containers that the pod did not have.
func newNotHonoured(spec *corev1.PodSpec, had sets.Set[string], path *field.Path) field.ErrorList {
	added := &corev1.PodSpec{EphemeralContainers: make([]corev1.EphemeralContainer, len(spec.EphemeralContainers))}
	for i, c := range spec.EphemeralContainers {
		if !had.Has(c.Name) {
			added.EphemeralContainers[i] = c // the others leave their place empty
		}
	}
	return refusals(fields.Refused(fields.Server, added, path))
}

func validateEphemeral(e *corev1.EphemeralContainer, spec *corev1.PodSpec, targets sets.Set[string], volumes map[string]*corev1.Volume, at *field.Path) field.ErrorList {
	c := (*corev1.Container)(&e.EphemeralContainerCommon)
	errs := validateContainer(c, spec, volumes, at)
	if padded(c.Image) {
		errs = append(errs, noBlanks(c.Image, at.Child("image"))...)
	}
	if e.TargetContainerName != "" && !targets.Has(e.TargetContainerName) {
		errs = append(errs, field.NotFound(at.Child("targetContainerName"), e.TargetContainerName))
	}
	known, v := ofEphemeral(), reflect.ValueOf(e.EphemeralContainerCommon)
	for i := range v.NumField() {
		if f := v.Type().Field(i); !known.Has(f.Name) && !v.Field(i).IsZero() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			errs = append(errs, field.Forbidden(at.Child(name), notForEphemeral))
		}
	}
	for i, m := range c.VolumeMounts {
		at := at.Child("volumeMounts").Index(i)
		if m.SubPath != "" {
			errs = append(errs, field.Forbidden(at.Child("subPath"), notForEphemeral))
		}
		if m.SubPathExpr != "" {
			errs = append(errs, field.Forbidden(at.Child("subPathExpr"), notForEphemeral))
		}
	}
	return errs
}
