package pod

import (
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// notSupported is what a client is told of a field or a value that Monopod does not honour.
const notSupported = "not supported by Monopod yet"

// supportRules says of every field of the API structs that a pod's spec is made of whether Monopod honours it. A test
// holds it against the Go types: a field that a newer API version adds is listed here before it is accepted.
type supportRules map[reflect.Type]fieldRules

// fieldRules is about the fields of one struct, by their Go names.
type fieldRules struct {
	// honoured fields take effect as the API documents it.
	honoured []string
	// refused fields must be left out, or hold a value that asks for nothing that is not so anyway.
	refused map[string]harmless
}

// harmless reports whether a field's value may be accepted although the field is not honoured. A nil harmless accepts
// no value at all.
type harmless func(reflect.Value) bool

// only accepts the given values, and pointers to them.
func only(accepted ...any) harmless {
	return func(v reflect.Value) bool {
		for v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		for _, a := range accepted {
			if v.Interface() == a {
				return true
			}
		}
		return false
	}
}

// check returns an error for every field below v that is set and not honoured, in the order of the struct's fields.
func (r supportRules) check(v reflect.Value, path *field.Path) field.ErrorList {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return r.check(v.Elem(), path)
	case reflect.Slice:
		var errs field.ErrorList
		for i := range v.Len() {
			errs = append(errs, r.check(v.Index(i), path.Index(i))...)
		}
		return errs
	case reflect.Struct:
		rules, ok := r[v.Type()]
		if !ok {
			return nil // a quantity, a time: no struct of fields
		}
		var errs field.ErrorList
		for i := range v.NumField() {
			errs = append(errs, r.checkField(rules, v.Type().Field(i), v.Field(i), path)...)
		}
		return errs
	default:
		return nil
	}
}

func (r supportRules) checkField(rules fieldRules, f reflect.StructField, v reflect.Value, path *field.Path) field.ErrorList {
	if isUnset(v) {
		return nil
	}
	accepts, refused := rules.refused[f.Name]
	if !refused && !hasFields(v.Kind()) || refused && accepts != nil && accepts(v) {
		return nil
	}
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name != "" { // an embedded struct's fields belong to the struct around it
		path = path.Child(name)
	}
	if refused {
		return field.ErrorList{field.Forbidden(path, notSupported)}
	}
	return r.check(v, path)
}

// hasFields reports whether fields may be found below a value of the kind.
func hasFields(k reflect.Kind) bool {
	return k == reflect.Struct || k == reflect.Pointer || k == reflect.Slice
}

// isUnset treats an empty list or map as one that was left out, as the API does.
func isUnset(v reflect.Value) bool {
	if v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
		return v.Len() == 0
	}
	return v.IsZero()
}

func newSupportRules() supportRules {
	rules := supportRules{
		reflect.TypeFor[corev1.PodSpec]():   podSpecRules(),
		reflect.TypeFor[corev1.Container](): containerRules(),
	}
	addContainerPartRules(rules)
	addVolumeRules(rules)
	addSecurityRules(rules)
	return rules
}

func podSpecRules() fieldRules {
	return fieldRules{
		honoured: []string{
			"Volumes", "InitContainers", "Containers", "RestartPolicy", "TerminationGracePeriodSeconds",
			"ActiveDeadlineSeconds", "DNSPolicy", "NodeSelector", "AutomountServiceAccountToken", "NodeName",
			"HostNetwork", "HostPID", "HostIPC", "SecurityContext", "Hostname", "SchedulerName", "Tolerations",
			"DNSConfig", "EnableServiceLinks", "ShareProcessNamespace", "ImagePullSecrets",
		},
		refused: map[string]harmless{
			"EphemeralContainers":       nil,
			"ServiceAccountName":        only("default"),
			"DeprecatedServiceAccount":  only("default"),
			"Subdomain":                 nil,
			"Affinity":                  empty,
			"HostAliases":               nil,
			"PriorityClassName":         nil,
			"Priority":                  only(int32(0)),
			"ReadinessGates":            nil,
			"RuntimeClassName":          nil,
			"PreemptionPolicy":          only(corev1.PreemptLowerPriority),
			"Overhead":                  nil,
			"TopologySpreadConstraints": nil,
			"SetHostnameAsFQDN":         only(false),
			"OS":                        only(corev1.PodOS{Name: corev1.Linux}),
			"HostUsers":                 only(true),
			"SchedulingGates":           nil,
			"ResourceClaims":            nil,
			"Resources":                 nil,
			"HostnameOverride":          nil,
			"SchedulingGroup":           nil,
			"EvictionResponders":        nil,
		},
	}
}

// empty accepts a pointer to a struct in which nothing is set.
func empty(v reflect.Value) bool { return v.Elem().IsZero() }

func containerRules() fieldRules {
	return fieldRules{
		honoured: []string{
			"Name", "Image", "Command", "Args", "WorkingDir", "Ports", "EnvFrom", "Env", "Resources", "VolumeMounts",
			"TerminationMessagePath", "TerminationMessagePolicy", "ImagePullPolicy", "SecurityContext", "Stdin",
			"StdinOnce", "TTY",
		},
		refused: map[string]harmless{
			"ResizePolicy":       nil,
			"RestartPolicy":      nil,
			"RestartPolicyRules": nil,
			"VolumeDevices":      nil,
			"LivenessProbe":      nil,
			"ReadinessProbe":     nil,
			"StartupProbe":       nil,
			"Lifecycle":          empty,
		},
	}
}

func addContainerPartRules(rules supportRules) {
	rules[reflect.TypeFor[corev1.ContainerPort]()] = fieldRules{
		honoured: []string{"Name", "HostPort", "ContainerPort", "Protocol", "HostIP"},
	}
	rules[reflect.TypeFor[corev1.EnvFromSource]()] = fieldRules{honoured: []string{"Prefix", "ConfigMapRef", "SecretRef"}}
	rules[reflect.TypeFor[corev1.ConfigMapEnvSource]()] = fieldRules{honoured: []string{"LocalObjectReference", "Optional"}}
	rules[reflect.TypeFor[corev1.SecretEnvSource]()] = fieldRules{honoured: []string{"LocalObjectReference", "Optional"}}
	rules[reflect.TypeFor[corev1.LocalObjectReference]()] = fieldRules{honoured: []string{"Name"}}
	rules[reflect.TypeFor[corev1.EnvVar]()] = fieldRules{honoured: []string{"Name", "Value", "ValueFrom"}}
	rules[reflect.TypeFor[corev1.EnvVarSource]()] = fieldRules{
		honoured: []string{"FieldRef", "ConfigMapKeyRef", "SecretKeyRef"},
		refused:  map[string]harmless{"ResourceFieldRef": nil, "FileKeyRef": nil},
	}
	rules[reflect.TypeFor[corev1.ObjectFieldSelector]()] = fieldRules{honoured: []string{"APIVersion", "FieldPath"}}
	rules[reflect.TypeFor[corev1.ConfigMapKeySelector]()] = fieldRules{honoured: []string{"LocalObjectReference", "Key", "Optional"}}
	rules[reflect.TypeFor[corev1.SecretKeySelector]()] = fieldRules{honoured: []string{"LocalObjectReference", "Key", "Optional"}}
	rules[reflect.TypeFor[corev1.ResourceRequirements]()] = fieldRules{
		honoured: []string{"Limits", "Requests"},
		refused:  map[string]harmless{"Claims": nil},
	}
	rules[reflect.TypeFor[corev1.VolumeMount]()] = fieldRules{
		honoured: []string{"Name", "ReadOnly", "MountPath", "SubPath"}, // SubPath: of some volumes, see validateMounts
		refused: map[string]harmless{
			"RecursiveReadOnly": only(corev1.RecursiveReadOnlyDisabled),
			"MountPropagation":  only(corev1.MountPropagationNone),
			"SubPathExpr":       nil,
			"BindMountOptions":  nil,
		},
	}
	rules[reflect.TypeFor[corev1.Toleration]()] = fieldRules{
		honoured: []string{"Key", "Operator", "Value", "Effect", "TolerationSeconds"},
	}
	rules[reflect.TypeFor[corev1.PodDNSConfig]()] = fieldRules{honoured: []string{"Nameservers", "Searches", "Options"}}
	rules[reflect.TypeFor[corev1.PodDNSConfigOption]()] = fieldRules{honoured: []string{"Name", "Value"}}
}

func addVolumeRules(rules supportRules) {
	rules[reflect.TypeFor[corev1.Volume]()] = fieldRules{honoured: []string{"Name", "VolumeSource"}}
	rules[reflect.TypeFor[corev1.VolumeSource]()] = fieldRules{
		honoured: []string{"HostPath", "EmptyDir", "Secret", "ConfigMap", "Image"},
		refused: map[string]harmless{
			"GCEPersistentDisk": nil, "AWSElasticBlockStore": nil, "GitRepo": nil, "NFS": nil, "ISCSI": nil,
			"Glusterfs": nil, "PersistentVolumeClaim": nil, "RBD": nil, "FlexVolume": nil, "Cinder": nil, "CephFS": nil,
			"Flocker": nil, "DownwardAPI": nil, "FC": nil, "AzureFile": nil, "VsphereVolume": nil, "Quobyte": nil,
			"AzureDisk": nil, "PhotonPersistentDisk": nil, "Projected": nil, "PortworxVolume": nil, "ScaleIO": nil,
			"StorageOS": nil, "CSI": nil, "Ephemeral": nil,
		},
	}
	rules[reflect.TypeFor[corev1.ImageVolumeSource]()] = fieldRules{honoured: []string{"Reference", "PullPolicy"}}
	rules[reflect.TypeFor[corev1.EmptyDirVolumeSource]()] = fieldRules{
		honoured: []string{"Medium", "SizeLimit"},
		refused:  map[string]harmless{"Mode": nil},
	}
	rules[reflect.TypeFor[corev1.HostPathVolumeSource]()] = fieldRules{honoured: []string{"Path", "Type"}}
	rules[reflect.TypeFor[corev1.ConfigMapVolumeSource]()] = fieldRules{
		honoured: []string{"LocalObjectReference", "Items", "DefaultMode", "Optional"},
		refused:  map[string]harmless{"DefaultUser": nil},
	}
	rules[reflect.TypeFor[corev1.SecretVolumeSource]()] = fieldRules{
		honoured: []string{"SecretName", "Items", "DefaultMode", "Optional"},
		refused:  map[string]harmless{"DefaultUser": nil},
	}
	rules[reflect.TypeFor[corev1.KeyToPath]()] = fieldRules{
		honoured: []string{"Key", "Path", "Mode"},
		refused:  map[string]harmless{"User": nil},
	}
}

func addSecurityRules(rules supportRules) {
	rules[reflect.TypeFor[corev1.SecurityContext]()] = fieldRules{
		honoured: []string{
			"Capabilities", "Privileged", "RunAsUser", "RunAsGroup", "RunAsNonRoot", "ReadOnlyRootFilesystem",
			"AllowPrivilegeEscalation", "SeccompProfile", "AppArmorProfile", "SELinuxOptions",
		},
		refused: map[string]harmless{
			"WindowsOptions": nil, // it may ask for less than a Linux container would have
			"ProcMount":      only(corev1.DefaultProcMount),
		},
	}
	rules[reflect.TypeFor[corev1.PodSecurityContext]()] = fieldRules{
		honoured: []string{
			"RunAsUser", "RunAsGroup", "RunAsNonRoot", "SupplementalGroups", "SupplementalGroupsPolicy", "Sysctls", "SeccompProfile", "AppArmorProfile",
			"SELinuxOptions", "FSGroup",
			// By the API they are about volumes of storage systems only, of which there are none: they change nothing for the others.
			"FSGroupChangePolicy", "SELinuxChangePolicy",
		},
		refused: map[string]harmless{"WindowsOptions": nil},
	}
	rules[reflect.TypeFor[corev1.SELinuxOptions]()] = fieldRules{honoured: []string{"User", "Role", "Type", "Level"}}
	rules[reflect.TypeFor[corev1.Capabilities]()] = fieldRules{honoured: []string{"Add", "Drop"}}
	rules[reflect.TypeFor[corev1.SeccompProfile]()] = fieldRules{honoured: []string{"Type", "LocalhostProfile"}}
	rules[reflect.TypeFor[corev1.AppArmorProfile]()] = fieldRules{honoured: []string{"Type", "LocalhostProfile"}}
	rules[reflect.TypeFor[corev1.Sysctl]()] = fieldRules{honoured: []string{"Name", "Value"}}
}
