package fields

import (
	"maps"
	"reflect"

	v1 "k8s.io/api/core/v1"
)

type rows = map[string]row

// table has the rows of every struct, by the names of its fields.
var table = func() map[reflect.Type]rows {
	all := map[reflect.Type]rows{}
	for _, part := range []map[reflect.Type]rows{podRows(), schedulingRows(), containerRows(), ephemeralRows(), actionRows(), volumeRows(), claimRows(), securityRows()} {
		maps.Copy(all, part)
	}
	return all
}()

// all makes rows of fields that are honoured.
func all(names ...string) rows {
	r := rows{}
	for _, name := range names {
		r[name] = honoured
	}
	return r
}

// seenTo makes rows of fields that are honoured, and of which agents leave that to others.
func seenTo(names ...string) rows {
	r := rows{}
	for _, name := range names {
		r[name] = row{Agent: left}
	}
	return r
}

// with adds rows to those of fields that are honoured.
func (r rowsOf) with(more rows) rows {
	maps.Copy(r, more)
	return rows(r)
}

type rowsOf rows

func podRows() map[reflect.Type]rows {
	return map[reflect.Type]rows{
		reflect.TypeFor[v1.PodSpec](): rowsOf(all(
			"Volumes", "InitContainers", "Containers", "RestartPolicy", "TerminationGracePeriodSeconds", "ActiveDeadlineSeconds", "DNSPolicy", "DNSConfig",
			"EnableServiceLinks", "NodeName", "HostNetwork", "HostPID", "HostIPC", "ShareProcessNamespace", "SecurityContext", "ImagePullSecrets", "Hostname", "HostnameOverride",
			"HostAliases", "HostUsers", "ReadinessGates", "ServiceAccountName", "RuntimeClassName", "Overhead", "EphemeralContainers", "Subdomain", "SetHostnameAsFQDN", "OS", "Resources",
			// The binder's, or a cluster's scheduler's; the agent says no to what does not fit its node.
			"NodeSelector", "Affinity", "SchedulingGates",
		)).with(rows{
			"SchedulerName":             {Agent: left},
			"Tolerations":               {Agent: left},
			"TopologySpreadConstraints": {Agent: left},
			"SchedulingGroup":           refusedHere,
			// The API server's admission makes the one of the other; what comes of them is a scheduler's.
			"PriorityClassName":  {Agent: left},
			"Priority":           {Agent: left},
			"PreemptionPolicy":   {Agent: left},
			"EvictionResponders": refusedHere,
			// A token is a volume, which admission adds. The agent makes the volume, and does not ask why it is there.
			"DeprecatedServiceAccount":     {Agent: left},
			"AutomountServiceAccountToken": {Agent: left},
			"ResourceClaims":               refused,
		}),
		reflect.TypeFor[v1.PodOS]():                 {"Name": both(unless(values(v1.Linux)))},
		reflect.TypeFor[v1.LocalObjectReference]():  all("Name"),
		reflect.TypeFor[v1.PodDNSConfig]():          all("Nameservers", "Searches", "Options"),
		reflect.TypeFor[v1.PodDNSConfigOption]():    all("Name", "Value"),
		reflect.TypeFor[v1.HostAlias]():             all("IP", "Hostnames"),
		reflect.TypeFor[v1.PodReadinessGate]():      all("ConditionType"),
		reflect.TypeFor[v1.Toleration]():            all("Key", "Operator", "Value", "Effect", "TolerationSeconds"),
		reflect.TypeFor[v1.ResourceRequirements]():  rowsOf(all("Limits", "Requests")).with(rows{"Claims": refused}),
		reflect.TypeFor[v1.ResourceFieldSelector](): all("ContainerName", "Resource", "Divisor"),
		reflect.TypeFor[v1.ObjectFieldSelector]():   all("APIVersion", "FieldPath"),
	}
}

// schedulingRows are about where a pod may run.
func schedulingRows() map[reflect.Type]rows {
	return map[reflect.Type]rows{
		reflect.TypeFor[v1.PodSchedulingGate](): all("Name"),
		// Which other pods are where no agent asks: a pod that names its node by itself is taken beside any.
		reflect.TypeFor[v1.Affinity]():                rowsOf(all("NodeAffinity")).with(seenTo("PodAffinity", "PodAntiAffinity")),
		reflect.TypeFor[v1.NodeAffinity]():            all("RequiredDuringSchedulingIgnoredDuringExecution", "PreferredDuringSchedulingIgnoredDuringExecution"),
		reflect.TypeFor[v1.PreferredSchedulingTerm](): all("Weight", "Preference"),
		reflect.TypeFor[v1.NodeSelector]():            all("NodeSelectorTerms"),
		reflect.TypeFor[v1.NodeSelectorTerm]():        all("MatchExpressions", "MatchFields"),
		reflect.TypeFor[v1.NodeSelectorRequirement](): all("Key", "Operator", "Values"),

		reflect.TypeFor[v1.PodAffinity]():             seenTo("RequiredDuringSchedulingIgnoredDuringExecution", "PreferredDuringSchedulingIgnoredDuringExecution"),
		reflect.TypeFor[v1.PodAntiAffinity]():         seenTo("RequiredDuringSchedulingIgnoredDuringExecution", "PreferredDuringSchedulingIgnoredDuringExecution"),
		reflect.TypeFor[v1.WeightedPodAffinityTerm](): seenTo("Weight", "PodAffinityTerm"),
		reflect.TypeFor[v1.PodAffinityTerm]():         seenTo("LabelSelector", "Namespaces", "NamespaceSelector", "TopologyKey", "MatchLabelKeys", "MismatchLabelKeys"),
		reflect.TypeFor[v1.TopologySpreadConstraint](): seenTo("MaxSkew", "TopologyKey", "WhenUnsatisfiable", "LabelSelector", "MinDomains", "NodeAffinityPolicy",
			"NodeTaintsPolicy", "MatchLabelKeys"),
	}
}

func containerRows() map[reflect.Type]rows {
	return map[reflect.Type]rows{
		reflect.TypeFor[v1.Container](): rowsOf(all(
			"Name", "Image", "Command", "Args", "WorkingDir", "Ports", "EnvFrom", "Env", "Resources", "VolumeMounts", "TerminationMessagePath",
			"TerminationMessagePolicy", "ImagePullPolicy", "SecurityContext", "Stdin", "StdinOnce", "TTY", "Lifecycle", "LivenessProbe", "ReadinessProbe",
			"StartupProbe", "RestartPolicy", "RestartPolicyRules", "VolumeDevices",
		)).with(rows{
			// It is about a later change of the resources, which our API server does not let in, and no agent of ours carries out. Others' API servers set it by default.
			"ResizePolicy": {Agent: left},
		}),
		reflect.TypeFor[v1.VolumeDevice]():         all("Name", "DevicePath"),
		reflect.TypeFor[v1.ContainerPort]():        all("Name", "HostPort", "ContainerPort", "Protocol", "HostIP"),
		reflect.TypeFor[v1.EnvFromSource]():        all("Prefix", "ConfigMapRef", "SecretRef"),
		reflect.TypeFor[v1.ConfigMapEnvSource]():   all("LocalObjectReference", "Optional"),
		reflect.TypeFor[v1.SecretEnvSource]():      all("LocalObjectReference", "Optional"),
		reflect.TypeFor[v1.EnvVar]():               all("Name", "Value", "ValueFrom"),
		reflect.TypeFor[v1.EnvVarSource]():         all("FieldRef", "ResourceFieldRef", "ConfigMapKeyRef", "SecretKeyRef", "FileKeyRef"),
		reflect.TypeFor[v1.FileKeySelector]():      all("VolumeName", "Path", "Key", "Optional"),
		reflect.TypeFor[v1.ConfigMapKeySelector](): all("LocalObjectReference", "Key", "Optional"),
		reflect.TypeFor[v1.SecretKeySelector]():    all("LocalObjectReference", "Key", "Optional"),
		reflect.TypeFor[v1.VolumeMount](): rowsOf(all("Name", "ReadOnly", "MountPath", "SubPath", "SubPathExpr", "MountPropagation", "RecursiveReadOnly")).with(rows{
			"BindMountOptions": refused,
		}),
	}
}

// ephemeralRows are about containers that are added to a pod that runs.
func ephemeralRows() map[reflect.Type]rows {
	return map[reflect.Type]rows{
		reflect.TypeFor[v1.EphemeralContainer](): all("EphemeralContainerCommon", "TargetContainerName"),
		reflect.TypeFor[v1.EphemeralContainerCommon](): rowsOf(all(
			"Name", "Image", "Command", "Args", "WorkingDir", "EnvFrom", "Env", "VolumeMounts", "TerminationMessagePath", "TerminationMessagePolicy",
			"ImagePullPolicy", "SecurityContext", "Stdin", "StdinOnce", "TTY", "VolumeDevices",
			// They are there because the type was made of Container's. No API server lets anybody set them: validation says so, in the API's words.
			"Ports", "Resources", "ResizePolicy", "RestartPolicy", "RestartPolicyRules", "LivenessProbe", "ReadinessProbe", "StartupProbe", "Lifecycle",
		)),
		reflect.TypeFor[v1.ContainerResizePolicy](): all("ResourceName", "RestartPolicy"),
	}
}

// actionRows are about what is asked of a container, or done to it, while it runs, and when it is started again.
func actionRows() map[reflect.Type]rows {
	return map[reflect.Type]rows{
		reflect.TypeFor[v1.Probe](): all("ProbeHandler", "InitialDelaySeconds", "TimeoutSeconds", "PeriodSeconds", "SuccessThreshold", "FailureThreshold",
			"TerminationGracePeriodSeconds"),
		reflect.TypeFor[v1.ProbeHandler]():     all("Exec", "HTTPGet", "TCPSocket", "GRPC"),
		reflect.TypeFor[v1.Lifecycle]():        all("PostStart", "PreStop", "StopSignal"),
		reflect.TypeFor[v1.LifecycleHandler](): all("Exec", "HTTPGet", "TCPSocket", "Sleep"),
		reflect.TypeFor[v1.ExecAction]():       all("Command"),
		reflect.TypeFor[v1.TCPSocketAction]():  all("Port", "Host"),
		reflect.TypeFor[v1.SleepAction]():      all("Seconds"),
		reflect.TypeFor[v1.HTTPHeader]():       all("Name", "Value"),
		// New in Kubernetes 1.37, behind feature gates there (H2CContainerProbe, GRPCContainerProbeTLS).
		reflect.TypeFor[v1.HTTPGetAction](): rowsOf(all("Path", "Port", "Host", "Scheme", "HTTPHeaders")).with(rows{"Protocol": both(unless(values(v1.HTTPProtocolHTTP1)))}),
		reflect.TypeFor[v1.GRPCAction]():    rowsOf(all("Port", "Service")).with(rows{"Mode": both(unless(values(v1.GRPCProbeModePlaintext)))}),

		reflect.TypeFor[v1.ContainerRestartRule]():            all("Action", "ExitCodes"),
		reflect.TypeFor[v1.ContainerRestartRuleOnExitCodes](): all("Operator", "Values"),
	}
}

func volumeRows() map[reflect.Type]rows {
	sources := all("HostPath", "EmptyDir", "Secret", "ConfigMap", "Image", "DownwardAPI", "Projected", "NFS", "PersistentVolumeClaim", "Ephemeral")
	for _, name := range []string{
		"GCEPersistentDisk", "AWSElasticBlockStore", "GitRepo", "ISCSI", "Glusterfs", "RBD", "FlexVolume", "Cinder", "CephFS",
		"Flocker", "FC", "AzureFile", "VsphereVolume", "Quobyte", "AzureDisk", "PhotonPersistentDisk", "PortworxVolume", "ScaleIO", "StorageOS", "CSI",
	} {
		sources[name] = refused
	}
	return map[reflect.Type]rows{
		reflect.TypeFor[v1.Volume]():               all("Name", "VolumeSource"),
		reflect.TypeFor[v1.VolumeSource]():         sources,
		reflect.TypeFor[v1.HostPathVolumeSource](): all("Path", "Type"),
		reflect.TypeFor[v1.ImageVolumeSource]():    all("Reference", "PullPolicy"),
		reflect.TypeFor[v1.NFSVolumeSource]():      all("Server", "Path", "ReadOnly"),
		reflect.TypeFor[v1.EmptyDirVolumeSource](): rowsOf(all("SizeLimit")).with(rows{
			"Medium": {Agent: unless(values(v1.StorageMediumDefault, v1.StorageMediumMemory))}, // the server's validation says which there are
			"Mode":   refused,
		}),
		reflect.TypeFor[v1.KeyToPath]():                     all("Key", "Path", "Mode", "User"),
		reflect.TypeFor[v1.ConfigMapVolumeSource]():         all("LocalObjectReference", "Items", "DefaultMode", "Optional", "DefaultUser"),
		reflect.TypeFor[v1.SecretVolumeSource]():            all("SecretName", "Items", "DefaultMode", "Optional", "DefaultUser"),
		reflect.TypeFor[v1.DownwardAPIVolumeSource]():       all("Items", "DefaultMode", "DefaultUser"),
		reflect.TypeFor[v1.DownwardAPIVolumeFile]():         all("Path", "FieldRef", "ResourceFieldRef", "Mode", "User"),
		reflect.TypeFor[v1.ProjectedVolumeSource]():         all("Sources", "DefaultMode", "DefaultUser"),
		reflect.TypeFor[v1.VolumeProjection]():              all("ConfigMap", "Secret", "DownwardAPI", "ServiceAccountToken", "ClusterTrustBundle", "PodCertificate"),
		reflect.TypeFor[v1.ConfigMapProjection]():           all("LocalObjectReference", "Items", "Optional"),
		reflect.TypeFor[v1.SecretProjection]():              all("LocalObjectReference", "Items", "Optional"),
		reflect.TypeFor[v1.DownwardAPIProjection]():         all("Items"),
		reflect.TypeFor[v1.ServiceAccountTokenProjection](): all("Audience", "ExpirationSeconds", "Path", "User"),
		reflect.TypeFor[v1.ClusterTrustBundleProjection]():  all("Name", "SignerName", "LabelSelector", "Optional", "Path", "User"),
		reflect.TypeFor[v1.PodCertificateProjection](): all("SignerName", "KeyType", "MaxExpirationSeconds", "CredentialBundlePath", "KeyPath",
			"CertificateChainPath", "UserAnnotations", "User"),
	}
}

// claimRows are about volumes that are claimed. What a claim is like that a pod brings along is for who makes it and the volume.
func claimRows() map[reflect.Type]rows {
	return map[reflect.Type]rows{
		reflect.TypeFor[v1.PersistentVolumeClaimVolumeSource](): all("ClaimName", "ReadOnly"),
		reflect.TypeFor[v1.EphemeralVolumeSource]():             seenTo("VolumeClaimTemplate"),
		reflect.TypeFor[v1.PersistentVolumeClaimTemplate]():     seenTo("Spec"),
		reflect.TypeFor[v1.PersistentVolumeClaimSpec](): seenTo("AccessModes", "Selector", "Resources", "VolumeName", "StorageClassName", "VolumeMode", "DataSource",
			"DataSourceRef", "VolumeAttributesClassName"),
		reflect.TypeFor[v1.VolumeResourceRequirements](): seenTo("Limits", "Requests"),
		reflect.TypeFor[v1.TypedLocalObjectReference]():  seenTo("APIGroup", "Kind", "Name"),
		reflect.TypeFor[v1.TypedObjectReference]():       rowsOf(seenTo("APIGroup", "Kind", "Name")).with(rows{"Namespace": refusedHere}),
	}
}

func securityRows() map[reflect.Type]rows {
	return map[reflect.Type]rows{
		reflect.TypeFor[v1.SecurityContext](): rowsOf(all(
			"Capabilities", "Privileged", "RunAsUser", "RunAsGroup", "RunAsNonRoot", "ReadOnlyRootFilesystem", "AllowPrivilegeEscalation", "SeccompProfile",
			"AppArmorProfile", "SELinuxOptions", "ProcMount",
		)).with(rows{
			"WindowsOptions": refused, // it may ask for less than a Linux container would have
		}),
		reflect.TypeFor[v1.PodSecurityContext](): rowsOf(all(
			"RunAsUser", "RunAsGroup", "RunAsNonRoot", "SupplementalGroups", "SupplementalGroupsPolicy", "Sysctls", "SeccompProfile", "AppArmorProfile",
			"SELinuxOptions", "FSGroup", "FSGroupChangePolicy",
			// By the API it is about volumes of storage systems only, of which there are none: it changes nothing for the others.
			"SELinuxChangePolicy",
		)).with(rows{"WindowsOptions": refused}),
		reflect.TypeFor[v1.SELinuxOptions]():  all("User", "Role", "Type", "Level"),
		reflect.TypeFor[v1.Capabilities]():    all("Add", "Drop"),
		reflect.TypeFor[v1.SeccompProfile]():  all("Type", "LocalhostProfile"),
		reflect.TypeFor[v1.AppArmorProfile](): all("Type", "LocalhostProfile"),
		reflect.TypeFor[v1.Sysctl]():          all("Name", "Value"),
	}
}
