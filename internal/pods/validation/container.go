package validation

import (
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods"
)

// validateContainers validates the init containers and the containers of a pod. volumes are its volumes, by name.
func validateContainers(spec *corev1.PodSpec, volumes map[string]*corev1.Volume, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(spec.Containers) == 0 {
		errs = append(errs, field.Required(at.Child("containers"), ""))
	}
	errs = append(errs, validateHostPorts(spec, at)...)
	names := sets.New[string]() // unique over all lists
	for at, c := range pods.ContainersAt(spec, at) {
		if at.Role == pods.Ephemeral { // they come by a way of their own: EphemeralContainers
			continue
		}
		path := at.Path()
		errs = append(errs, requiredName(c.Name, path.Child("name"))...)
		if c.Name != "" && names.Has(c.Name) {
			errs = append(errs, field.Duplicate(path.Child("name"), c.Name))
		}
		names.Insert(c.Name)
		errs = append(errs, validateContainer(c, spec, volumes, path)...)
		errs = append(errs, validateActions(c, at.Role, spec, path)...)
		errs = append(errs, validateRestart(c, path)...)
	}
	return errs
}

func validateContainer(c *corev1.Container, spec *corev1.PodSpec, volumes map[string]*corev1.Volume, at *field.Path) field.ErrorList {
	errs := requiredImage(c.Image, at.Child("image"))
	errs = append(errs, oneOf(c.ImagePullPolicy, at.Child("imagePullPolicy"),
		corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
	if c.TerminationMessagePath == "" {
		errs = append(errs, field.Required(at.Child("terminationMessagePath"), ""))
	}
	errs = append(errs, oneOf(c.TerminationMessagePolicy, at.Child("terminationMessagePolicy"),
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, validatePorts(c.Ports, spec.HostNetwork, at.Child("ports"))...)
	errs = append(errs, validateEnv(c.Env, volumes, at.Child("env"))...)
	errs = append(errs, validateEnvFrom(c.EnvFrom, at.Child("envFrom"))...)
	errs = append(errs, validateResources(&c.Resources, ContainerResourceName, at.Child("resources"))...)
	errs = append(errs, validateResizePolicy(c.ResizePolicy, spec.RestartPolicy, at.Child("resizePolicy"))...)
	errs = append(errs, validateMounts(c, volumes, at.Child("volumeMounts"))...)
	errs = append(errs, validateDevices(c, volumes, at.Child("volumeDevices"))...)
	return append(errs, validateContainerSecurity(c.SecurityContext, pods.HostUsers(spec), at.Child("securityContext"))...)
}

// Image tells what is wrong with the name of a pod's image.
func Image(image string, at *field.Path) field.ErrorList {
	return append(requiredImage(image, at), noBlanks(image, at)...)
}

func requiredImage(image string, at *field.Path) field.ErrorList {
	if image == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return nil
}

func padded(image string) bool { return strings.TrimSpace(image) != image }

func noBlanks(image string, at *field.Path) field.ErrorList {
	if padded(image) {
		return field.ErrorList{field.Invalid(at, image, "must not have leading or trailing whitespace")}
	}
	return nil
}

// validateHostPorts refuses a port of the host that a pod asks for twice.
func validateHostPorts(spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for at, c := range pods.ContainersAt(spec, at) {
		if !at.Role.Main() {
			continue
		}
		for i, p := range c.Ports {
			if p.HostPort == 0 {
				continue
			}
			port := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
			if seen.Has(port) {
				errs = append(errs, field.Duplicate(at.Path().Child("ports").Index(i).Child("hostPort"), port))
			}
			seen.Insert(port)
		}
	}
	return errs
}

func validatePorts(ports []corev1.ContainerPort, hostNetwork bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i := range ports {
		p, at := &ports[i], at.Index(i)
		if p.Name != "" {
			errs = append(errs, invalidIf(true, p.Name, at.Child("name"), validation.IsValidPortName)...)
			if names.Has(p.Name) {
				errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
			}
			names.Insert(p.Name)
		}
		if p.ContainerPort == 0 {
			errs = append(errs, field.Required(at.Child("containerPort"), ""))
		} else {
			for _, msg := range validation.IsValidPortNum(int(p.ContainerPort)) {
				errs = append(errs, field.Invalid(at.Child("containerPort"), p.ContainerPort, msg))
			}
		}
		if p.HostPort != 0 {
			for _, msg := range validation.IsValidPortNum(int(p.HostPort)) {
				errs = append(errs, field.Invalid(at.Child("hostPort"), p.HostPort, msg))
			}
			if hostNetwork && p.HostPort != p.ContainerPort {
				errs = append(errs, field.Invalid(at.Child("hostPort"), p.HostPort,
					fmt.Sprintf("must be equal to containerPort (%d) when `hostNetwork` is true", p.ContainerPort)))
			}
		}
		errs = append(errs, invalidIf(p.HostIP != "", p.HostIP, at.Child("hostIP"), isIP)...)
		errs = append(errs, oneOf(p.Protocol, at.Child("protocol"), corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)...)
	}
	return errs
}

func validateMounts(c *corev1.Container, volumes map[string]*corev1.Volume, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	places := sets.New[string]()
	for i := range c.VolumeMounts {
		m, at := &c.VolumeMounts[i], at.Index(i)
		switch {
		case m.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case volumes[m.Name] == nil:
			errs = append(errs, field.NotFound(at.Child("name"), m.Name))
		}
		switch {
		case m.MountPath == "":
			errs = append(errs, field.Required(at.Child("mountPath"), ""))
		case places.Has(path.Clean(pods.MountPath(m))):
			errs = append(errs, field.Invalid(at.Child("mountPath"), m.MountPath, "must be unique"))
		}
		places.Insert(path.Clean(pods.MountPath(m)))
		errs = append(errs, validateSubPaths(m, at)...)
		if m.MountPropagation != nil {
			errs = append(errs, validatePropagation(*m.MountPropagation, c, at.Child("mountPropagation"))...)
		}
		errs = append(errs, validateRecursiveReadOnly(m, at.Child("recursiveReadOnly"))...)
	}
	return errs
}

// validatePropagation: what a container mounts reaches the host only from one that may do everything there anyway.
func validatePropagation(mode corev1.MountPropagationMode, c *corev1.Container, at *field.Path) field.ErrorList {
	errs := oneOf(mode, at, corev1.MountPropagationNone, corev1.MountPropagationHostToContainer, corev1.MountPropagationBidirectional)
	if mode == corev1.MountPropagationBidirectional && !pods.Privileged(c) {
		errs = append(errs, field.Forbidden(at, "Bidirectional mount propagation is available only to privileged containers"))
	}
	return errs
}

// validateSubPaths is about the part of a volume that a container sees, of which one of two fields tells.
func validateSubPaths(m *corev1.VolumeMount, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if m.SubPath != "" {
		errs = append(errs, validateSubPath(m.SubPath, at.Child("subPath"))...)
	}
	if m.SubPathExpr == "" {
		return errs
	}
	if m.SubPath != "" {
		errs = append(errs, field.Invalid(at.Child("subPathExpr"), m.SubPathExpr, "subPathExpr and subPath are mutually exclusive"))
	}
	return append(errs, validateSubPath(m.SubPathExpr, at.Child("subPathExpr"))...)
}

// validateRecursiveReadOnly: what is read-only in all its depth is read-only, and nothing is mounted there later.
func validateRecursiveReadOnly(m *corev1.VolumeMount, at *field.Path) field.ErrorList {
	if m.RecursiveReadOnly == nil {
		return nil
	}
	errs := oneOf(*m.RecursiveReadOnly, at, corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyIfPossible, corev1.RecursiveReadOnlyEnabled)
	if len(errs) > 0 || *m.RecursiveReadOnly == corev1.RecursiveReadOnlyDisabled {
		return errs
	}
	if !m.ReadOnly {
		errs = append(errs, field.Forbidden(at, "may only be specified when readOnly is true"))
	}
	if p := m.MountPropagation; p != nil && *p != corev1.MountPropagationNone {
		errs = append(errs, field.Forbidden(at, "may only be specified when mountPropagation is None or not specified"))
	}
	return errs
}

// validateSubPath is about a path below the root of a volume.
func validateSubPath(sub string, at *field.Path) field.ErrorList {
	switch {
	case path.IsAbs(sub):
		return field.ErrorList{field.Invalid(at, sub, "must be a relative path")}
	case hasBackstep(sub):
		return field.ErrorList{field.Invalid(at, sub, "must not contain '..'")}
	}
	return nil
}
