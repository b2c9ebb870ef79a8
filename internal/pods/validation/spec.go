package validation

import (
	"math"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods"
	"monopod.dev/monopod/internal/pods/fields"
)

// maxHostname is the kernel's limit (sethostname(2)).
const maxHostname = 64

// NotSupported is what a client is told of a field or a value that Monopod does not honour.
const NotSupported = "not supported by Monopod yet"

// Spec tells what is wrong with the specification of a pod that a client wants to create, with its defaults set. path is where it stands.
func Spec(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(path.Child("ephemeralContainers"), "cannot be set on create"))
		spec = withoutEphemeral(spec)
	}
	errs = append(errs, anywhere(spec, path)...)
	if spec.NodeName != "" && len(spec.SchedulingGates) > 0 {
		errs = append(errs, field.Forbidden(path.Child("nodeName"), "cannot be set until all schedulingGates have been cleared"))
	}
	for at, c := range pods.ContainersAt(spec, path) {
		if padded(c.Image) {
			errs = append(errs, noBlanks(c.Image, at.Path().Child("image"))...)
		}
	}
	return errs
}

// anywhere tells what is wrong with a specification wherever it stands.
func anywhere(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	return append(notHonoured(spec, path), validateSpec(spec, path)...)
}

// Template tells what is wrong with a template that pods are made from, with its defaults set. path is where it stands. Blanks around the name of an image
// are let be, as by other API servers: there are people whose templates have a blank until something puts the name in its place.
func Template(template *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	errs := metavalidation.ValidateLabels(template.Labels, path.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(template.Annotations, path.Child("annotations"))...)
	errs = append(errs, Annotations(template.Annotations, &template.Spec, path.Child("annotations"))...)
	spec, at := &template.Spec, path.Child("spec")
	if len(spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(at.Child("ephemeralContainers"), "ephemeral containers not allowed in pod template"))
		spec = withoutEphemeral(spec)
	}
	return append(errs, anywhere(spec, at)...)
}

func withoutEphemeral(spec *corev1.PodSpec) *corev1.PodSpec {
	rest := *spec
	rest.EphemeralContainers = nil
	return &rest
}

func notHonoured(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	return refusals(fields.Refused(fields.Server, spec, path))
}

func refusals(list []fields.Refusal) (errs field.ErrorList) {
	for _, r := range list {
		message := NotSupported
		if r.Unless != "" {
			message += " unless " + r.Unless
		}
		errs = append(errs, field.Forbidden(r.Path, message))
	}
	return errs
}

func validateSpec(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	volumes, errs := validateVolumes(spec.Volumes, path.Child("volumes"))
	errs = append(errs, validateContainers(spec, volumes, path)...)
	errs = append(errs, validatePodResources(spec, path.Child("resources"))...)
	errs = append(errs, oneOf(spec.RestartPolicy, path.Child("restartPolicy"),
		corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)...)
	if spec.TerminationGracePeriodSeconds == nil { // one below zero is taken for 1, with a warning
		errs = append(errs, field.Required(path.Child("terminationGracePeriodSeconds"), ""))
	}
	if s := spec.ActiveDeadlineSeconds; s != nil && (*s < 1 || *s > math.MaxInt32) {
		errs = append(errs, field.Invalid(path.Child("activeDeadlineSeconds"), *s,
			validation.InclusiveRangeError(1, math.MaxInt32)))
	}
	errs = append(errs, validateDNS(spec, path)...)
	errs = append(errs, metavalidation.ValidateLabels(spec.NodeSelector, path.Child("nodeSelector"))...)
	errs = append(errs, invalidIf(spec.NodeName != "", spec.NodeName, path.Child("nodeName"), validation.IsDNS1123Subdomain)...)
	errs = append(errs, invalidIf(spec.ServiceAccountName != "", spec.ServiceAccountName, path.Child("serviceAccountName"), validation.IsDNS1123Subdomain)...)
	errs = append(errs, NodeAffinity(spec.Affinity, path.Child("affinity"))...)
	errs = append(errs, validatePodTerms(spec, path)...)
	errs = append(errs, validateSpread(spec.TopologySpreadConstraints, path.Child("topologySpreadConstraints"))...)
	errs = append(errs, validateGates(spec.SchedulingGates, path.Child("schedulingGates"))...)
	if spec.OS != nil && spec.OS.Name == "" {
		errs = append(errs, field.Required(path.Child("os", "name"), ""))
	}
	errs = append(errs, invalidIf(spec.Hostname != "", spec.Hostname, path.Child("hostname"), validation.IsDNS1123Label)...)
	errs = append(errs, invalidIf(spec.Subdomain != "", spec.Subdomain, path.Child("subdomain"), validation.IsDNS1123Label)...)
	errs = append(errs, validateHostnameOverride(spec, path.Child("hostnameOverride"))...)
	errs = append(errs, validateHostAliases(spec.HostAliases, path.Child("hostAliases"))...)
	for i, gate := range spec.ReadinessGates {
		errs = append(errs, invalidIf(true, string(gate.ConditionType), path.Child("readinessGates").Index(i).Child("conditionType"), validation.IsQualifiedName)...)
	}
	errs = append(errs, invalidIf(true, spec.SchedulerName, path.Child("schedulerName"), validation.IsDNS1123Subdomain)...)
	if share := spec.ShareProcessNamespace; spec.HostPID && share != nil && *share {
		errs = append(errs, field.Invalid(path.Child("shareProcessNamespace"), true, "must not be true when `hostPID` is true"))
	}
	errs = append(errs, validateHostUsers(spec, path)...)
	errs = append(errs, Tolerations(spec.Tolerations, path.Child("tolerations"))...)
	return append(errs, validatePodSecurity(spec, path.Child("securityContext"))...)
}

// validateHostnameOverride: the name is the whole of what the kernel calls the pod's host.
func validateHostnameOverride(spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	name := spec.HostnameOverride
	if name == nil {
		return nil
	}
	errs := invalidIf(true, *name, at, validation.IsDNS1123Subdomain)
	if len(*name) > maxHostname {
		errs = append(errs, field.TooLong(at, *name, maxHostname))
	}
	if fqdn := spec.SetHostnameAsFQDN; fqdn != nil && *fqdn {
		errs = append(errs, field.Forbidden(at, "may not be specified when `setHostnameAsFQDN` is true"))
	}
	if spec.HostNetwork {
		errs = append(errs, field.Forbidden(at, "may not be specified when `hostNetwork` is true"))
	}
	return errs
}

// Tolerations tells what is wrong with the tolerations of a pod.
func Tolerations(tolerations []corev1.Toleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range tolerations {
		t, at := &tolerations[i], path.Index(i)
		if t.Key != "" {
			errs = append(errs, metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
		} else if t.Operator != corev1.TolerationOpExists {
			errs = append(errs, field.Invalid(at.Child("operator"), t.Operator,
				"operator must be Exists when `key` is empty, which means \"match all values and all keys\""))
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			errs = append(errs, invalidIf(true, t.Value, at.Child("value"), validation.IsValidLabelValue)...)
		case corev1.TolerationOpExists:
			if t.Value != "" {
				errs = append(errs, field.Invalid(at.Child("value"), t.Value, "value must be empty when `operator` is 'Exists'"))
			}
		case corev1.TolerationOpLt, corev1.TolerationOpGt:
			errs = append(errs, invalidIf(true, t.Value, at.Child("value"), content.IsDecimalInteger)...)
			if _, err := strconv.ParseInt(t.Value, 10, 64); err != nil {
				errs = append(errs, field.Invalid(at.Child("value"), t.Value, err.Error()))
			}
		default:
			errs = append(errs, oneOf(t.Operator, at.Child("operator"), corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt)...)
		}
		if t.Effect != "" {
			errs = append(errs, oneOf(t.Effect, at.Child("effect"),
				corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			errs = append(errs, field.Invalid(at.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
		}
	}
	return errs
}
