package pod

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods/fields"
)

// Limits of dnsConfig, those of the resolver that most images have.
const (
	// maxHostname is the kernel's limit (sethostname(2)).
	maxHostname       = 64
	maxNameservers    = 3
	maxSearchDomains  = 32
	maxSearchListSize = 2048
)

// validatePod tells what is wrong with a pod that a client wants to create.
func validatePod(pod *corev1.Pod) field.ErrorList {
	spec := field.NewPath("spec")
	errs := apivalidation.ValidateObjectMeta(&pod.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	errs = append(errs, notHonoured(&pod.Spec, spec)...)
	return append(errs, validateSpec(&pod.Spec, spec)...)
}

// notSupported is what a client is told of a field or a value that Monopod does not honour.
const notSupported = "not supported by Monopod yet"

func notHonoured(spec *corev1.PodSpec, path *field.Path) (errs field.ErrorList) {
	for _, r := range fields.Refused(fields.Server, spec, path) {
		message := notSupported
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
	errs = append(errs, oneOf(spec.RestartPolicy, path.Child("restartPolicy"),
		corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)...)
	if s := spec.TerminationGracePeriodSeconds; s != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(*s, path.Child("terminationGracePeriodSeconds"))...)
	}
	if s := spec.ActiveDeadlineSeconds; s != nil && (*s < 1 || *s > math.MaxInt32) {
		errs = append(errs, field.Invalid(path.Child("activeDeadlineSeconds"), *s,
			validation.InclusiveRangeError(1, math.MaxInt32)))
	}
	errs = append(errs, validateDNS(spec, path)...)
	errs = append(errs, metavalidation.ValidateLabels(spec.NodeSelector, path.Child("nodeSelector"))...)
	errs = append(errs, invalidIf(spec.NodeName != "", spec.NodeName, path.Child("nodeName"), validation.IsDNS1123Subdomain)...)
	errs = append(errs, invalidIf(spec.Hostname != "", spec.Hostname, path.Child("hostname"), validation.IsDNS1123Label)...)
	errs = append(errs, invalidIf(spec.ServiceAccountName != "", spec.ServiceAccountName, path.Child("serviceAccountName"),
		func(name string) []string { return apivalidation.ValidateServiceAccountName(name, false) })...)
	errs = append(errs, validateHostnameOverride(spec, path.Child("hostnameOverride"))...)
	errs = append(errs, validateHostAliases(spec.HostAliases, path.Child("hostAliases"))...)
	for i, gate := range spec.ReadinessGates {
		errs = append(errs, invalidIf(true, string(gate.ConditionType), path.Child("readinessGates").Index(i).Child("conditionType"), validation.IsQualifiedName)...)
	}
	errs = append(errs, invalidIf(true, spec.SchedulerName, path.Child("schedulerName"), validation.IsDNS1123Subdomain)...)
	if share := spec.ShareProcessNamespace; spec.HostPID && share != nil && *share {
		errs = append(errs, field.Invalid(path.Child("shareProcessNamespace"), true, "must not be true when `hostPID` is true"))
	}
	errs = append(errs, validateTolerations(spec.Tolerations, path.Child("tolerations"))...)
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
	if spec.HostNetwork {
		errs = append(errs, field.Invalid(at, *name, "may not be specified when `hostNetwork` is true"))
	}
	return errs
}

func isIP(s string) []string {
	if addr, err := netip.ParseAddr(s); err != nil || addr.Zone() != "" {
		return []string{"must be an IPv4 or IPv6 address"}
	}
	return nil
}

func validateDNS(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := oneOf(spec.DNSPolicy, path.Child("dnsPolicy"),
		corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet, corev1.DNSDefault, corev1.DNSNone)
	var config corev1.PodDNSConfig
	if spec.DNSConfig != nil {
		config = *spec.DNSConfig
	}
	path = path.Child("dnsConfig")
	servers := path.Child("nameservers")
	if spec.DNSPolicy == corev1.DNSNone && len(config.Nameservers) == 0 {
		errs = append(errs, field.Required(servers, "must provide at least one DNS nameserver when `dnsPolicy` is None"))
	}
	if len(config.Nameservers) > maxNameservers {
		errs = append(errs, field.TooMany(servers, len(config.Nameservers), maxNameservers))
	}
	for i, server := range config.Nameservers {
		if _, err := netip.ParseAddr(server); err != nil {
			errs = append(errs, field.Invalid(servers.Index(i), server, "must be an IP address"))
		}
	}
	searches := path.Child("searches")
	if len(config.Searches) > maxSearchDomains {
		errs = append(errs, field.TooMany(searches, len(config.Searches), maxSearchDomains))
	}
	if list := strings.Join(config.Searches, " "); len(list) > maxSearchListSize {
		errs = append(errs, field.TooLong(searches, list, maxSearchListSize))
	}
	for i, domain := range config.Searches {
		// A trailing dot says that the name is complete, a lone one that no domain is appended at all.
		trimmed := strings.TrimSuffix(domain, ".")
		errs = append(errs, invalidIf(domain != ".", trimmed, searches.Index(i), validation.IsDNS1123SubdomainWithUnderscore)...)
	}
	for i, option := range config.Options {
		if option.Name == "" {
			errs = append(errs, field.Required(path.Child("options").Index(i).Child("name"), ""))
		}
	}
	return errs
}

func validateTolerations(tolerations []corev1.Toleration, path *field.Path) field.ErrorList {
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
		default:
			errs = append(errs, oneOf(t.Operator, at.Child("operator"), corev1.TolerationOpEqual, corev1.TolerationOpExists)...)
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

// warnings tells what is legal but hardly meant.
func warnings(pod *corev1.Pod) []string {
	var list []string
	secrets := sets.New[string]()
	for i, s := range pod.Spec.ImagePullSecrets {
		switch {
		case s.Name == "":
			list = append(list, fmt.Sprintf("spec.imagePullSecrets[%d].name: invalid empty name %q", i, s.Name))
		case secrets.Has(s.Name):
			list = append(list, fmt.Sprintf("spec.imagePullSecrets[%d].name: duplicate name %q", i, s.Name))
		}
		secrets.Insert(s.Name)
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		seen := sets.New[string]()
		for j := range c.Env {
			if name := c.Env[j].Name; seen.Has(name) {
				list = append(list, fmt.Sprintf("spec.containers[%d].env[%d]: hides previous definition of %q", i, j, name))
			} else {
				seen.Insert(name)
			}
		}
	}
	return list
}

// oneOf requires value to be one of those named. An empty value is reported as missing.
func oneOf[T ~string](value T, path *field.Path, allowed ...T) field.ErrorList {
	switch {
	case slices.Contains(allowed, value):
		return nil
	case value == "":
		return field.ErrorList{field.Required(path, "")}
	default:
		return field.ErrorList{field.NotSupported(path, value, allowed)}
	}
}

// invalidIf reports what check has to say of value, provided that applies.
func invalidIf(applies bool, value string, path *field.Path, check func(string) []string) field.ErrorList {
	if !applies {
		return nil
	}
	var errs field.ErrorList
	for _, message := range check(value) {
		errs = append(errs, field.Invalid(path, value, message))
	}
	return errs
}

// requiredName is a name that must be there and must be a DNS label.
func requiredName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return invalidIf(true, name, path, validation.IsDNS1123Label)
}
