package defaults

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod.dev/monopod/internal/pods"
)

const (
	// defaultFileMode is the mode of a file in a configMap or secret volume.
	defaultFileMode = 0o644
	// defaultTokenSeconds is how long a token of a service account in a volume is good for.
	defaultTokenSeconds = 3600
)

// Pod sets the defaults of a pod: those of its specification, and those that only a pod gets. A template goes without the latter, so that it does not
// change when a version of the API adds one, and what it was written with decides when its pods are made.
func Pod(pod *corev1.Pod) {
	spec := &pod.Spec
	setDefaultPointer(&spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	for role, c := range pods.Containers(spec) {
		if role == pods.Ephemeral { // it has neither resources nor ports
			continue
		}
		setRequests(&c.Resources)
		if spec.HostNetwork {
			for i := range c.Ports {
				setDefault(&c.Ports[i].HostPort, c.Ports[i].ContainerPort)
			}
		}
	}
	setPodResources(pod)
	Spec(spec)
}

// Template sets the defaults of a template that pods are made from.
func Template(template *corev1.PodTemplateSpec) { Spec(&template.Spec) }

// Spec sets the defaults that a specification has wherever it stands, in a pod or in a template.
func Spec(spec *corev1.PodSpec) {
	setDefault(&spec.DNSPolicy, corev1.DNSClusterFirst)
	setDefault(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	setDefault(&spec.SchedulerName, corev1.DefaultSchedulerName)
	setDefaultPointer(&spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	// The account has two names, and the older one is an alias.
	setDefault(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	RoundUp(spec.Overhead)
	if spec.Resources != nil {
		RoundUp(spec.Resources.Limits)
		RoundUp(spec.Resources.Requests)
	}
	for _, c := range pods.Containers(spec) {
		setContainerDefaults(c)
	}
	for i := range spec.Volumes {
		setVolumeDefaults(&spec.Volumes[i])
	}
}

func setContainerDefaults(c *corev1.Container) {
	setDefault(&c.ImagePullPolicy, pullPolicyFor(c.Image))
	setDefault(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	setDefault(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		setDefault(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			setFieldRefDefaults(from.FieldRef)
			if ref := from.FileKeyRef; ref != nil && ref.Optional == nil {
				ref.Optional = new(false)
			}
		}
	}
	RoundUp(c.Resources.Limits)
	RoundUp(c.Resources.Requests)
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		setProbeDefaults(probe)
	}
	if c.Lifecycle != nil {
		for _, hook := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if hook != nil {
				setHTTPGetDefaults(hook.HTTPGet)
			}
		}
	}
}

// setRequests makes the limit the request where none is given.
func setRequests(r *corev1.ResourceRequirements) {
	for name, limit := range r.Limits {
		if _, ok := r.Requests[name]; ok {
			continue
		}
		if r.Requests == nil {
			r.Requests = corev1.ResourceList{}
		}
		r.Requests[name] = limit.DeepCopy()
	}
}

func setFieldRefDefaults(ref *corev1.ObjectFieldSelector) {
	if ref != nil {
		setDefault(&ref.APIVersion, "v1")
	}
}

func setProbeDefaults(p *corev1.Probe) {
	if p == nil {
		return
	}
	setDefault(&p.TimeoutSeconds, 1)
	setDefault(&p.PeriodSeconds, 10)
	setDefault(&p.SuccessThreshold, 1)
	setDefault(&p.FailureThreshold, 3)
	setHTTPGetDefaults(p.HTTPGet)
	if p.GRPC != nil {
		setDefaultPointer(&p.GRPC.Service, "")
	}
}

func setHTTPGetDefaults(h *corev1.HTTPGetAction) {
	if h == nil {
		return
	}
	setDefault(&h.Path, "/")
	setDefault(&h.Scheme, corev1.URISchemeHTTP)
}

// volumeDefaults set what holds of each kind of volume where nothing is said. The others have no defaults.
var volumeDefaults = map[pods.VolumeKind]func(s *corev1.VolumeSource){
	pods.HostPathVolume:  func(s *corev1.VolumeSource) { setDefaultPointer(&s.HostPath.Type, corev1.HostPathUnset) },
	pods.SecretVolume:    func(s *corev1.VolumeSource) { setDefaultPointer(&s.Secret.DefaultMode, defaultFileMode) },
	pods.ConfigMapVolume: func(s *corev1.VolumeSource) { setDefaultPointer(&s.ConfigMap.DefaultMode, defaultFileMode) },
	pods.DownwardAPIVolume: func(s *corev1.VolumeSource) {
		setDefaultPointer(&s.DownwardAPI.DefaultMode, defaultFileMode)
		setDownwardDefaults(s.DownwardAPI.Items)
	},
	pods.ProjectedVolume: func(s *corev1.VolumeSource) { setProjectedDefaults(s.Projected) },
	pods.EphemeralVolume: func(s *corev1.VolumeSource) {
		if template := s.Ephemeral.VolumeClaimTemplate; template != nil {
			ClaimSpec(&template.Spec)
		}
	},
	pods.ImageVolume: func(s *corev1.VolumeSource) { setDefault(&s.Image.PullPolicy, pullPolicyFor(s.Image.Reference)) },
}

func setVolumeDefaults(v *corev1.Volume) {
	if v.VolumeSource == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	for kind := range pods.KindsOf(&v.VolumeSource) {
		if set := volumeDefaults[kind]; set != nil {
			set(&v.VolumeSource)
		}
	}
}

func setProjectedDefaults(p *corev1.ProjectedVolumeSource) {
	setDefaultPointer(&p.DefaultMode, defaultFileMode)
	for i := range p.Sources {
		s := &p.Sources[i]
		if s.DownwardAPI != nil {
			setDownwardDefaults(s.DownwardAPI.Items)
		}
		if s.ServiceAccountToken != nil {
			setDefaultPointer(&s.ServiceAccountToken.ExpirationSeconds, defaultTokenSeconds)
		}
	}
}

func setDownwardDefaults(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		setFieldRefDefaults(items[i].FieldRef)
	}
}

// pullPolicyFor is the pull policy of an image for which none is given: an image whose tag is moved about is looked up
// each time, all others are pulled once.
func pullPolicyFor(image string) corev1.PullPolicy {
	name, _, hasDigest := strings.Cut(image, "@")
	// A colon before the last slash is that of a registry's port.
	_, tag, hasTag := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	if tag == "latest" || (!hasTag && !hasDigest) {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// RoundUp rounds quantities up to the thousandths that the API keeps.
func RoundUp(list corev1.ResourceList) {
	for name, quantity := range list {
		quantity.RoundUp(resource.Milli)
		list[name] = quantity
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func setDefaultPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
