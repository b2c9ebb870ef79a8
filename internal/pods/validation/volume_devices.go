package validation

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods"
)

// validateDevices is about volumes that a container has as block devices: only claims can be such, and none is mounted beside that. Which claims are is known to the node.
func validateDevices(c *corev1.Container, volumes map[string]*corev1.Volume, at *field.Path) (errs field.ErrorList) {
	names, places := sets.New[string](), sets.New[string]()
	for i := range c.VolumeDevices {
		d, at := &c.VolumeDevices[i], at.Index(i)
		v := volumes[d.Name]
		switch {
		case d.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case names.Has(d.Name):
			errs = append(errs, field.Invalid(at.Child("name"), d.Name, "must be unique"))
		case v == nil:
			errs = append(errs, field.NotFound(at.Child("name"), d.Name))
		case pods.KindOf(&v.VolumeSource) != pods.ClaimVolume && pods.KindOf(&v.VolumeSource) != pods.EphemeralVolume:
			errs = append(errs, field.Invalid(at.Child("name"), d.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"))
		}
		switch {
		case d.DevicePath == "":
			errs = append(errs, field.Required(at.Child("devicePath"), ""))
		case places.Has(d.DevicePath):
			errs = append(errs, field.Invalid(at.Child("devicePath"), d.DevicePath, "must be unique"))
		case hasBackstep(d.DevicePath):
			errs = append(errs, field.Invalid(at.Child("devicePath"), d.DevicePath, "can not contain backsteps ('..')"))
		}
		names.Insert(d.Name)
		places.Insert(d.DevicePath)
		if d.Name != "" && slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == d.Name }) {
			errs = append(errs, field.Invalid(at.Child("name"), d.Name, "must not already exist in volumeMounts"))
		}
		if d.DevicePath != "" && slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == d.DevicePath }) {
			errs = append(errs, field.Invalid(at.Child("devicePath"), d.DevicePath, "must not already exist as a path in volumeMounts"))
		}
	}
	return errs
}
