package plan

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Unsupported names the fields of the specification that this agent does not honour. A pod that uses one is failed at
// once, by name, rather than run as something else than was asked for.
func Unsupported(pod *v1.Pod) []string {
	var u refusals
	s := &pod.Spec
	u.when(s.RuntimeClassName != nil && *s.RuntimeClassName != "", "spec.runtimeClassName")
	u.when(s.HostUsers != nil && !*s.HostUsers, "spec.hostUsers: false")
	u.when(len(s.ResourceClaims) > 0, "spec.resourceClaims")
	u.when(len(s.EphemeralContainers) > 0, "spec.ephemeralContainers")
	u.when(s.SetHostnameAsFQDN != nil && *s.SetHostnameAsFQDN, "spec.setHostnameAsFQDN")
	u.when(s.OS != nil && s.OS.Name != v1.Linux, "spec.os.name other than linux")
	for i := range s.InitContainers {
		c := &s.InitContainers[i]
		path := fmt.Sprintf("spec.initContainers[%d]", i)
		u.when(c.RestartPolicy != nil, path+".restartPolicy")
		u.container(pod, c, path)
	}
	for i := range s.Containers {
		c := &s.Containers[i]
		path := fmt.Sprintf("spec.containers[%d]", i)
		u.when(c.RestartPolicy != nil, path+".restartPolicy")
		u.container(pod, c, path)
	}
	for i := range s.Volumes {
		u.volume(&s.Volumes[i], fmt.Sprintf("spec.volumes[%d]", i))
	}
	return u
}

type refusals []string

func (u *refusals) when(refused bool, field string) {
	if refused {
		*u = append(*u, field)
	}
}

func (u *refusals) container(pod *v1.Pod, c *v1.Container, path string) {
	u.when(c.LivenessProbe != nil, path+".livenessProbe")
	u.when(c.ReadinessProbe != nil, path+".readinessProbe")
	u.when(c.StartupProbe != nil, path+".startupProbe")
	u.when(c.Lifecycle != nil && c.Lifecycle.PostStart != nil, path+".lifecycle.postStart")
	u.when(c.Lifecycle != nil && c.Lifecycle.PreStop != nil, path+".lifecycle.preStop")
	u.when(len(c.RestartPolicyRules) > 0, path+".restartPolicyRules")
	u.when(len(c.VolumeDevices) > 0, path+".volumeDevices")
	u.when(len(c.Resources.Claims) > 0, path+".resources.claims")
	for i, m := range c.VolumeMounts {
		path := fmt.Sprintf("%s.volumeMounts[%d]", path, i)
		u.when(m.SubPath != "" && !ofImage(pod, m.Name), path+".subPath")
		u.when(m.SubPathExpr != "", path+".subPathExpr")
		u.when(m.RecursiveReadOnly != nil && *m.RecursiveReadOnly == v1.RecursiveReadOnlyEnabled, path+".recursiveReadOnly: Enabled")
		u.when(len(m.BindMountOptions) > 0, path+".bindMountOptions")
	}
	for i, e := range c.Env {
		u.when(e.ValueFrom != nil && e.ValueFrom.FileKeyRef != nil, fmt.Sprintf("%s.env[%d].valueFrom.fileKeyRef", path, i))
	}
}

// ofImage says that a volume is of the kind image.
func ofImage(pod *v1.Pod, volume string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool { return v.Name == volume && v.Image != nil })
}

func (u *refusals) volume(v *v1.Volume, path string) {
	switch {
	case v.EmptyDir != nil:
		m := v.EmptyDir.Medium
		u.when(m != v1.StorageMediumDefault && m != v1.StorageMediumMemory, path+".emptyDir.medium: "+string(m))
	case v.HostPath != nil, v.ConfigMap != nil, v.Secret != nil, v.DownwardAPI != nil, v.Image != nil:
	case v.Projected != nil:
		for i, s := range v.Projected.Sources {
			ok := s.ConfigMap != nil || s.Secret != nil || s.DownwardAPI != nil || s.ServiceAccountToken != nil
			u.when(!ok, fmt.Sprintf("%s.projected.sources[%d]", path, i))
		}
	default:
		u.when(true, path+" (the volume's kind)")
	}
}
