package validation

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods/defaults"
)

// validPod is a pod that uses most of what is honoured, with its defaults set.
func validPod() *corev1.Pod {
	one := int64(1)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init", Image: "busybox:1"}},
			Containers: []corev1.Container{{
				Name: "web", Image: "registry:5000/web@sha256:0000000000000000000000000000000000000000000000000000000000000000",
				Command: []string{"web"}, Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}},
				Env: []corev1.EnvVar{
					{Name: "A", Value: "$(B)"},
					{Name: "B.b-1", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['app']"}}},
					{Name: "C", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
						LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k"}}},
				},
				EnvFrom: []corev1.EnvFromSource{{Prefix: "P_", ConfigMapRef: &corev1.ConfigMapEnvSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}}},
				Resources: corev1.ResourceRequirements{
					Limits:   corev1.ResourceList{"cpu": resource.MustParse("1"), "example.com/widget": resource.MustParse("2")},
					Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("1Gi")},
				},
				VolumeMounts: []corev1.VolumeMount{
					{Name: "scratch", MountPath: "/scratch"}, {Name: "conf", MountPath: "/etc/conf", ReadOnly: true},
				},
				SecurityContext: &corev1.SecurityContext{RunAsUser: &one, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			}},
			Volumes: []corev1.Volume{
				{Name: "scratch"},
				{Name: "conf", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}, Items: []corev1.KeyToPath{{Key: "k", Path: "a/b"}}}}},
				{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv"}}},
			},
			SecurityContext: &corev1.PodSecurityContext{
				Sysctls:        []corev1.Sysctl{{Name: "net.core.somaxconn", Value: "1"}},
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Tolerations:  []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &one}},
			NodeSelector: map[string]string{"disk": "ssd"},
			DNSPolicy:    corev1.DNSNone, DNSConfig: &corev1.PodDNSConfig{Nameservers: []string{"10.0.0.1"}, Searches: []string{"a.b.", "."}},
		},
	}
	defaults.Pod(pod)
	return pod
}

// summary writes errors as "path: type", which is what the tables compare: words may get better.
func summary(errs field.ErrorList) []string {
	var list []string
	for _, err := range errs {
		list = append(list, err.Field+": "+string(err.Type))
	}
	return list
}

// imageVolume makes the first volume, which the first container mounts first, an image.
func imageVolume(s *corev1.PodSpec, ref string, policy corev1.PullPolicy, sub string) {
	s.Volumes[0] = corev1.Volume{Name: s.Containers[0].VolumeMounts[0].Name, VolumeSource: corev1.VolumeSource{
		Image: &corev1.ImageVolumeSource{Reference: ref, PullPolicy: policy},
	}}
	s.Containers[0].VolumeMounts[0].SubPath = sub
}

func resourceRef(s *corev1.PodSpec, name, divisor string) {
	s.Containers[0].Env[1].ValueFrom = &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: name, Divisor: resource.MustParse(divisor)}}
}

func fileRef(s *corev1.PodSpec, volume, path, key string) {
	s.Containers[0].Env[1].ValueFrom = &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{VolumeName: volume, Path: path, Key: key}}
}

func fieldFile(path, name string) corev1.DownwardAPIVolumeFile {
	return corev1.DownwardAPIVolumeFile{Path: path, FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: name}}
}

func limitFile(path, container, name string) corev1.DownwardAPIVolumeFile {
	return corev1.DownwardAPIVolumeFile{Path: path, ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: container, Resource: name}}
}

func downward(s *corev1.PodSpec, files ...corev1.DownwardAPIVolumeFile) {
	s.Volumes[0].VolumeSource = corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: files}}
}

func projected(s *corev1.PodSpec, sources ...corev1.VolumeProjection) {
	s.Volumes[0].VolumeSource = corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources}}
}

func configMapFile(path string) corev1.VolumeProjection {
	return corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}, Items: []corev1.KeyToPath{{Key: "k", Path: path}}}}
}

func secretFile(path string) corev1.VolumeProjection {
	return corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Items: []corev1.KeyToPath{{Key: "k", Path: path}}}}
}

func downwardSource(files ...corev1.DownwardAPIVolumeFile) corev1.VolumeProjection {
	return corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{Items: files}}
}

// device gives the container devices, of volumes among which is a claim "disk".
func device(s *corev1.PodSpec, devices ...corev1.VolumeDevice) {
	s.Volumes = append(s.Volumes, corev1.Volume{Name: "disk", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}})
	s.Containers[0].VolumeDevices = devices
}

func claimed(s *corev1.PodSpec, name string) {
	s.Volumes[2].VolumeSource = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
}

func stopSignal(s *corev1.PodSpec, name corev1.Signal) {
	s.OS = &corev1.PodOS{Name: corev1.Linux}
	s.Containers[0].Lifecycle = &corev1.Lifecycle{StopSignal: &name}
}

func TestSpec(t *testing.T) {
	const c = "spec.containers[0]."
	quantity := resource.MustParse
	for name, tc := range map[string]struct {
		change func(*corev1.PodSpec)
		want   []string
	}{
		"valid":                   {func(*corev1.PodSpec) {}, nil},
		"no containers":           {func(s *corev1.PodSpec) { s.Containers = nil }, []string{"spec.containers: FieldValueRequired"}},
		"container without name":  {func(s *corev1.PodSpec) { s.Containers[0].Name = "" }, []string{c + "name: FieldValueRequired"}},
		"container name":          {func(s *corev1.PodSpec) { s.Containers[0].Name = "Web" }, []string{c + "name: FieldValueInvalid"}},
		"same name in both lists": {func(s *corev1.PodSpec) { s.Containers[0].Name = "init" }, []string{c + "name: FieldValueDuplicate"}},
		"no image":                {func(s *corev1.PodSpec) { s.InitContainers[0].Image = "" }, []string{"spec.initContainers[0].image: FieldValueRequired"}},
		"image with blank":        {func(s *corev1.PodSpec) { s.Containers[0].Image = "a " }, []string{c + "image: FieldValueInvalid"}},
		"pull policy":             {func(s *corev1.PodSpec) { s.Containers[0].ImagePullPolicy = "Sometimes" }, []string{c + "imagePullPolicy: FieldValueNotSupported"}},
		"restart policy":          {func(s *corev1.PodSpec) { s.RestartPolicy = "Maybe" }, []string{"spec.restartPolicy: FieldValueNotSupported"}},
		"no restart policy":       {func(s *corev1.PodSpec) { s.RestartPolicy = "" }, []string{"spec.restartPolicy: FieldValueRequired"}},
		"no grace period":         {func(s *corev1.PodSpec) { s.TerminationGracePeriodSeconds = nil }, []string{"spec.terminationGracePeriodSeconds: FieldValueRequired"}},
		"negative grace":          {func(s *corev1.PodSpec) { *s.TerminationGracePeriodSeconds = -1 }, nil},
		"deadline of zero":        {func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = new(int64) }, []string{"spec.activeDeadlineSeconds: FieldValueInvalid"}},
		"host name":               {func(s *corev1.PodSpec) { s.Hostname = "a.b" }, []string{"spec.hostname: FieldValueInvalid"}},
		"node name":               {func(s *corev1.PodSpec) { s.NodeName = "Node_1" }, []string{"spec.nodeName: FieldValueInvalid"}},
		"node selector":           {func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"a b": "c"} }, []string{"spec.nodeSelector: FieldValueInvalid"}},
		"service account":         {func(s *corev1.PodSpec) { s.ServiceAccountName = "r2_d2" }, []string{"spec.serviceAccountName: FieldValueInvalid"}},
		"sub path":                {func(s *corev1.PodSpec) { s.Containers[0].VolumeMounts[0].SubPath = "a" }, nil},
		"sub path by expression":  {func(s *corev1.PodSpec) { s.Containers[0].VolumeMounts[0].SubPathExpr = "$(A)/$(B.b-1)" }, nil},
		"bad sub path by expression": {func(s *corev1.PodSpec) { s.Containers[0].VolumeMounts[0].SubPathExpr = "/$(A)/.." },
			[]string{c + "volumeMounts[0].subPathExpr: FieldValueInvalid"}},
		"two sub paths": {func(s *corev1.PodSpec) {
			s.Containers[0].VolumeMounts[0].SubPath, s.Containers[0].VolumeMounts[0].SubPathExpr = "a", "a"
		}, []string{c + "volumeMounts[0].subPathExpr: FieldValueInvalid"}},
		"recursive read-only": {func(s *corev1.PodSpec) {
			s.Containers[0].VolumeMounts[0].RecursiveReadOnly = new(corev1.RecursiveReadOnlyDisabled)
			s.Containers[0].VolumeMounts[1].RecursiveReadOnly = new(corev1.RecursiveReadOnlyEnabled)
		}, nil},
		"recursive read-only to be written": {func(s *corev1.PodSpec) {
			s.Containers[0].VolumeMounts[0].RecursiveReadOnly = new(corev1.RecursiveReadOnlyIfPossible)
			s.Containers[0].VolumeMounts[0].MountPropagation = new(corev1.MountPropagationHostToContainer)
		}, []string{c + "volumeMounts[0].recursiveReadOnly: FieldValueForbidden", c + "volumeMounts[0].recursiveReadOnly: FieldValueForbidden"}},
		"unknown recursive read-only": {func(s *corev1.PodSpec) {
			s.Containers[0].VolumeMounts[1].RecursiveReadOnly = new(corev1.RecursiveReadOnlyMode("Odd"))
		}, []string{c + "volumeMounts[1].recursiveReadOnly: FieldValueNotSupported"}},
		"file of variables": {func(s *corev1.PodSpec) { fileRef(s, "scratch", "a/env", "KEY") }, nil},
		"file of no emptyDir": {func(s *corev1.PodSpec) { fileRef(s, "conf", "env", "KEY") },
			[]string{c + "env[1].valueFrom.fileKeyRef.volumeName: FieldValueInvalid"}},
		"file of no volume": {func(s *corev1.PodSpec) { fileRef(s, "none", "../env", "A=B") }, []string{c + "env[1].valueFrom.fileKeyRef.key: FieldValueInvalid",
			c + "env[1].valueFrom.fileKeyRef.volumeName: FieldValueNotFound", c + "env[1].valueFrom.fileKeyRef.path: FieldValueInvalid"}},
		"file of nothing": {func(s *corev1.PodSpec) { fileRef(s, "", "", "") }, []string{c + "env[1].valueFrom.fileKeyRef.key: FieldValueRequired",
			c + "env[1].valueFrom.fileKeyRef.volumeName: FieldValueRequired", c + "env[1].valueFrom.fileKeyRef.path: FieldValueRequired"}},
		"host port": {func(s *corev1.PodSpec) {
			s.Containers[0].Ports[0].HostPort, s.Containers[0].Ports[0].HostIP = 80, "::1"
		}, nil},
		"host port out of range": {func(s *corev1.PodSpec) { s.Containers[0].Ports[0].HostPort = 70000 }, []string{c + "ports[0].hostPort: FieldValueInvalid"}},
		"host port twice": {func(s *corev1.PodSpec) {
			s.Containers[0].Ports[0].HostPort = 80
			p := s.Containers[0].Ports[0]
			p.Name, p.ContainerPort = "other", 81
			s.Containers[0].Ports = append(s.Containers[0].Ports, p)
		}, []string{c + "ports[1].hostPort: FieldValueDuplicate"}},
		"host address": {func(s *corev1.PodSpec) { s.Containers[0].Ports[0].HostIP = "host" }, []string{c + "ports[0].hostIP: FieldValueInvalid"}},
		"host port, host's network": {func(s *corev1.PodSpec) {
			s.HostNetwork = true
			s.SecurityContext = nil
			s.Containers[0].Ports[0].HostPort = 80
		}, nil},
		"another host port": {func(s *corev1.PodSpec) {
			s.HostNetwork = true
			s.SecurityContext = nil
			s.Containers[0].Ports[0].HostPort = 8
		}, []string{c + "ports[0].hostPort: FieldValueInvalid"}},
		"no port":           {func(s *corev1.PodSpec) { s.Containers[0].Ports[0].ContainerPort = 0 }, []string{c + "ports[0].containerPort: FieldValueRequired"}},
		"port out of range": {func(s *corev1.PodSpec) { s.Containers[0].Ports[0].ContainerPort = 65536 }, []string{c + "ports[0].containerPort: FieldValueInvalid"}},
		"port name twice": {func(s *corev1.PodSpec) {
			s.Containers[0].Ports = append(s.Containers[0].Ports, s.Containers[0].Ports[0])
		}, []string{c + "ports[1].name: FieldValueDuplicate"}},
		"protocol": {func(s *corev1.PodSpec) { s.Containers[0].Ports[0].Protocol = "tcp" }, []string{c + "ports[0].protocol: FieldValueNotSupported"}},

		"mount of no volume":  {func(s *corev1.PodSpec) { s.Containers[0].VolumeMounts[0].Name = "else" }, []string{c + "volumeMounts[0].name: FieldValueNotFound"}},
		"mount without path":  {func(s *corev1.PodSpec) { s.Containers[0].VolumeMounts[0].MountPath = "" }, []string{c + "volumeMounts[0].mountPath: FieldValueRequired"}},
		"mount with relative": {func(s *corev1.PodSpec) { s.Containers[0].VolumeMounts[0].MountPath = "a:b" }, nil},
		"the same, relative":  {func(s *corev1.PodSpec) { s.Containers[0].VolumeMounts[0].MountPath = "etc/conf" }, []string{c + "volumeMounts[1].mountPath: FieldValueInvalid"}},
		"resize policy": {func(s *corev1.PodSpec) {
			s.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: "cpu", RestartPolicy: "NotRequired"}, {ResourceName: "memory", RestartPolicy: "RestartContainer"}}
		}, nil},
		"resize policies that are none": {func(s *corev1.PodSpec) {
			s.RestartPolicy = "Never"
			s.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: "disk", RestartPolicy: "NotRequired"}, {ResourceName: "disk", RestartPolicy: "NotRequired"}, {ResourceName: "cpu", RestartPolicy: "RestartContainer"}}
		}, []string{c + "resizePolicy: FieldValueNotSupported", c + "resizePolicy[1]: FieldValueDuplicate", c + "resizePolicy: FieldValueNotSupported", c + "resizePolicy: FieldValueInvalid"}},
		"two mounts in one place": {func(s *corev1.PodSpec) { s.Containers[0].VolumeMounts[0].MountPath = "/etc/conf/" }, []string{c + "volumeMounts[1].mountPath: FieldValueInvalid"}},
		"volume twice":            {func(s *corev1.PodSpec) { s.Volumes[2].Name = "conf" }, []string{"spec.volumes[2].name: FieldValueDuplicate"}},
		"two sources":             {func(s *corev1.PodSpec) { s.Volumes[2].EmptyDir = &corev1.EmptyDirVolumeSource{} }, []string{"spec.volumes[2].hostPath: FieldValueForbidden"}},
		"nfs": {func(s *corev1.PodSpec) {
			s.Volumes[2].VolumeSource = corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "a", Path: "/"}}
		}, nil},
		"nfs without all": {func(s *corev1.PodSpec) {
			s.Volumes[2].VolumeSource = corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}
		}, []string{"spec.volumes[2].nfs.server: FieldValueRequired", "spec.volumes[2].nfs.path: FieldValueRequired"}},
		"nfs of a relative path": {func(s *corev1.PodSpec) {
			s.Volumes[2].VolumeSource = corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "a", Path: "b"}}
		}, []string{"spec.volumes[2].nfs.path: FieldValueInvalid"}},
		"a claim":                {func(s *corev1.PodSpec) { claimed(s, "c") }, nil},
		"a claim without a name": {func(s *corev1.PodSpec) { claimed(s, "") }, []string{"spec.volumes[2].persistentVolumeClaim.claimName: FieldValueRequired"}},
		"a device":               {func(s *corev1.PodSpec) { device(s, corev1.VolumeDevice{Name: "disk", DevicePath: "/dev/x"}) }, nil},
		"a device of no volume":  {func(s *corev1.PodSpec) { device(s, corev1.VolumeDevice{Name: "none", DevicePath: "/dev/x"}) }, []string{c + "volumeDevices[0].name: FieldValueNotFound"}},
		"a device of no claim": {func(s *corev1.PodSpec) { device(s, corev1.VolumeDevice{Name: "conf", DevicePath: "/dev/x"}) }, []string{
			c + "volumeDevices[0].name: FieldValueInvalid", c + "volumeDevices[0].name: FieldValueInvalid"}}, // and it is mounted
		"a device without all": {func(s *corev1.PodSpec) { device(s, corev1.VolumeDevice{}) }, []string{c + "volumeDevices[0].name: FieldValueRequired", c + "volumeDevices[0].devicePath: FieldValueRequired"}},
		"a device that leaves": {func(s *corev1.PodSpec) { device(s, corev1.VolumeDevice{Name: "disk", DevicePath: "/dev/../x"}) }, []string{c + "volumeDevices[0].devicePath: FieldValueInvalid"}},
		"devices twice": {func(s *corev1.PodSpec) { d := corev1.VolumeDevice{Name: "disk", DevicePath: "/dev/x"}; device(s, d, d) }, []string{
			c + "volumeDevices[1].name: FieldValueInvalid", c + "volumeDevices[1].devicePath: FieldValueInvalid"}},
		"a device where a volume is": {func(s *corev1.PodSpec) {
			device(s, corev1.VolumeDevice{Name: "disk", DevicePath: s.Containers[0].VolumeMounts[0].MountPath})
		}, []string{
			c + "volumeDevices[0].devicePath: FieldValueInvalid"}},
		"volume of a kind to come": {func(s *corev1.PodSpec) {
			s.Volumes[2].VolumeSource = corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d"}}
		},
			[]string{"spec.volumes[2].csi: FieldValueForbidden"}},
		"host path with ..":  {func(s *corev1.PodSpec) { s.Volumes[2].HostPath.Path = "/a/../b" }, []string{"spec.volumes[2].hostPath.path: FieldValueInvalid"}},
		"file that leaves":   {func(s *corev1.PodSpec) { s.Volumes[1].ConfigMap.Items[0].Path = "../b" }, []string{"spec.volumes[1].configMap.items[0].path: FieldValueInvalid"}},
		"absolute file":      {func(s *corev1.PodSpec) { s.Volumes[1].ConfigMap.Items[0].Path = "/b" }, []string{"spec.volumes[1].configMap.items[0].path: FieldValueInvalid"}},
		"file mode":          {func(s *corev1.PodSpec) { *s.Volumes[1].ConfigMap.DefaultMode = 0o1000 }, []string{"spec.volumes[1].configMap.defaultMode: FieldValueInvalid"}},
		"no config map":      {func(s *corev1.PodSpec) { s.Volumes[1].ConfigMap.Name = "" }, []string{"spec.volumes[1].configMap.name: FieldValueRequired"}},
		"huge pages medium":  {func(s *corev1.PodSpec) { s.Volumes[0].EmptyDir.Medium = "HugePages" }, []string{"spec.volumes[0].emptyDir.medium: FieldValueNotSupported"}},
		"size limit on disk": {func(s *corev1.PodSpec) { q := quantity("1Gi"); s.Volumes[0].EmptyDir.SizeLimit = &q }, nil},
		"size limit in memory": {func(s *corev1.PodSpec) {
			q := quantity("1Gi")
			s.Volumes[0].EmptyDir = &corev1.EmptyDirVolumeSource{Medium: "Memory", SizeLimit: &q}
		}, nil},

		"downward files": {func(s *corev1.PodSpec) {
			downward(s, fieldFile("a/labels", "metadata.labels"), limitFile("cpu", "web", "limits.cpu"))
		}, nil},
		"file of the node": {func(s *corev1.PodSpec) { downward(s, fieldFile("node", "spec.nodeName")) },
			[]string{"spec.volumes[0].downwardAPI.items[0].fieldRef.fieldPath: FieldValueNotSupported"}},
		"file of nobody's": {func(s *corev1.PodSpec) { downward(s, limitFile("cpu", "", "limits.cpu")) },
			[]string{"spec.volumes[0].downwardAPI.items[0].resourceFieldRef.containerName: FieldValueRequired"}},
		"file without source": {func(s *corev1.PodSpec) { downward(s, corev1.DownwardAPIVolumeFile{Path: "../a"}) },
			[]string{"spec.volumes[0].downwardAPI.items[0].path: FieldValueInvalid", "spec.volumes[0].downwardAPI.items[0]: FieldValueRequired"}},
		"file of two sources": {func(s *corev1.PodSpec) {
			f := limitFile("a", "web", "limits.cpu")
			f.FieldRef = &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}
			downward(s, f)
		}, []string{"spec.volumes[0].downwardAPI.items[0]: FieldValueInvalid"}},
		"projected": {func(s *corev1.PodSpec) {
			projected(s, configMapFile("a"), secretFile("b"), downwardSource(fieldFile("c", "metadata.name")))
		}, nil},
		"projected to one path": {func(s *corev1.PodSpec) {
			projected(s, configMapFile("a"), downwardSource(fieldFile("a", "metadata.name")))
		},
			[]string{"spec.volumes[0].projected.sources[1].downwardAPI.items[0].path: FieldValueInvalid"}},
		"projected nothing": {func(s *corev1.PodSpec) { projected(s, corev1.VolumeProjection{}) }, []string{"spec.volumes[0].projected.sources[0]: FieldValueRequired"}},
		"projected two": {func(s *corev1.PodSpec) {
			both := configMapFile("a")
			both.Secret = secretFile("b").Secret
			projected(s, both)
		}, []string{"spec.volumes[0].projected.sources[0]: FieldValueForbidden"}},
		"token": {func(s *corev1.PodSpec) {
			projected(s, corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(600))}})
		}, nil},
		"token of a short life": {func(s *corev1.PodSpec) {
			projected(s, corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "../token", ExpirationSeconds: new(int64(599))}})
		}, []string{"spec.volumes[0].projected.sources[0].serviceAccountToken.path: FieldValueInvalid", "spec.volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds: FieldValueInvalid"}},
		"propagation": {func(s *corev1.PodSpec) {
			s.Containers[0].VolumeMounts[0].MountPropagation = new(corev1.MountPropagationHostToContainer)
		}, nil},
		"propagation to the host": {func(s *corev1.PodSpec) {
			s.Containers[0].VolumeMounts[0].MountPropagation = new(corev1.MountPropagationBidirectional)
		}, []string{c + "volumeMounts[0].mountPropagation: FieldValueForbidden"}},
		"propagation to the host, privileged": {func(s *corev1.PodSpec) {
			s.Containers[0].VolumeMounts[0].MountPropagation = new(corev1.MountPropagationBidirectional)
			s.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		}, nil},
		"unknown propagation": {func(s *corev1.PodSpec) {
			s.Containers[0].VolumeMounts[0].MountPropagation = new(corev1.MountPropagationMode("Up"))
		}, []string{c + "volumeMounts[0].mountPropagation: FieldValueNotSupported"}},
		"aliases": {func(s *corev1.PodSpec) {
			s.HostAliases = []corev1.HostAlias{{IP: "10.1.2.3", Hostnames: []string{"a", "b.example"}}, {IP: "::1"}}
		}, nil},
		"bad aliases": {func(s *corev1.PodSpec) { s.HostAliases = []corev1.HostAlias{{IP: "host", Hostnames: []string{"a b"}}} },
			[]string{"spec.hostAliases[0].ip: FieldValueInvalid", "spec.hostAliases[0].hostnames[0]: FieldValueInvalid"}},
		"gates": {func(s *corev1.PodSpec) {
			s.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/lb"}}
		}, nil},
		"bad gate":        {func(s *corev1.PodSpec) { s.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "a b"}} }, []string{"spec.readinessGates[0].conditionType: FieldValueInvalid"}},
		"whole host name": {func(s *corev1.PodSpec) { s.HostnameOverride = new("db.example.com") }, nil},
		"host name override": {func(s *corev1.PodSpec) {
			s.HostnameOverride, s.HostNetwork, s.SecurityContext = new("a_b"), true, nil
			s.Containers[0].Ports = nil
		},
			[]string{"spec.hostnameOverride: FieldValueInvalid", "spec.hostnameOverride: FieldValueForbidden"}},
		"long host name": {func(s *corev1.PodSpec) { s.HostnameOverride = new(strings.Repeat("a", 63) + ".bc") }, []string{"spec.hostnameOverride: FieldValueTooLong"}},
		"stop signal":    {func(s *corev1.PodSpec) { stopSignal(s, "SIGRTMIN+3") }, nil},
		"stop signal of no system": {func(s *corev1.PodSpec) { stopSignal(s, "SIGUSR1"); s.OS = nil },
			[]string{c + "lifecycle.stopSignal: FieldValueForbidden"}},
		"no signal": {func(s *corev1.PodSpec) { stopSignal(s, "SIGNAL") }, []string{c + "lifecycle.stopSignal: FieldValueNotSupported"}},

		"image volume": {func(s *corev1.PodSpec) { imageVolume(s, "r.io/a:1", corev1.PullNever, "a/b") }, nil},
		"image volume without reference": {func(s *corev1.PodSpec) { imageVolume(s, "", corev1.PullAlways, "") },
			[]string{"spec.volumes[0].image.reference: FieldValueRequired"}},
		"image volume's policy": {func(s *corev1.PodSpec) { imageVolume(s, "a", "Sometimes", "") },
			[]string{"spec.volumes[0].image.pullPolicy: FieldValueNotSupported"}},
		"image volume without policy": {func(s *corev1.PodSpec) { imageVolume(s, "a", "", "") },
			[]string{"spec.volumes[0].image.pullPolicy: FieldValueRequired"}},
		"absolute sub path": {func(s *corev1.PodSpec) { imageVolume(s, "a", corev1.PullAlways, "/a") },
			[]string{c + "volumeMounts[0].subPath: FieldValueInvalid"}},
		"sub path with ..": {func(s *corev1.PodSpec) { imageVolume(s, "a", corev1.PullAlways, "a/../b") },
			[]string{c + "volumeMounts[0].subPath: FieldValueInvalid"}},
		"image volume and another": {func(s *corev1.PodSpec) {
			imageVolume(s, "a", corev1.PullAlways, "")
			s.Volumes[0].EmptyDir = &corev1.EmptyDirVolumeSource{}
		}, []string{"spec.volumes[0].image: FieldValueForbidden"}},
		"pull secrets": {func(s *corev1.PodSpec) { s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "a"}, {}} }, nil},

		"env without name":     {func(s *corev1.PodSpec) { s.Containers[0].Env[0].Name = "" }, []string{c + "env[0].name: FieldValueRequired"}},
		"env name":             {func(s *corev1.PodSpec) { s.Containers[0].Env[0].Name = "a=b" }, []string{c + "env[0].name: FieldValueInvalid"}},
		"value and source":     {func(s *corev1.PodSpec) { s.Containers[0].Env[1].Value = "v" }, []string{c + "env[1].valueFrom: FieldValueInvalid"}},
		"empty source":         {func(s *corev1.PodSpec) { s.Containers[0].Env[1].ValueFrom = &corev1.EnvVarSource{} }, []string{c + "env[1].valueFrom: FieldValueInvalid"}},
		"resource":             {func(s *corev1.PodSpec) { resourceRef(s, "limits.cpu", "1m") }, nil},
		"unknown resource ref": {func(s *corev1.PodSpec) { resourceRef(s, "limits.color", "1") }, []string{c + "env[1].valueFrom.resourceFieldRef.resource: FieldValueNotSupported"}},
		"neither limit":        {func(s *corev1.PodSpec) { resourceRef(s, "cpu", "1") }, []string{c + "env[1].valueFrom.resourceFieldRef.resource: FieldValueNotSupported"}},
		"no resource":          {func(s *corev1.PodSpec) { resourceRef(s, "", "1") }, []string{c + "env[1].valueFrom.resourceFieldRef.resource: FieldValueRequired"}},
		"divisor":              {func(s *corev1.PodSpec) { resourceRef(s, "requests.memory", "1m") }, []string{c + "env[1].valueFrom.resourceFieldRef.divisor: FieldValueInvalid"}},
		"unknown field":        {func(s *corev1.PodSpec) { s.Containers[0].Env[1].ValueFrom.FieldRef.FieldPath = "spec.color" }, []string{c + "env[1].valueFrom.fieldRef.fieldPath: FieldValueNotSupported"}},
		"all labels":           {func(s *corev1.PodSpec) { s.Containers[0].Env[1].ValueFrom.FieldRef.FieldPath = "metadata.labels" }, []string{c + "env[1].valueFrom.fieldRef.fieldPath: FieldValueNotSupported"}},
		"version of the field": {func(s *corev1.PodSpec) { s.Containers[0].Env[1].ValueFrom.FieldRef.APIVersion = "v2" }, []string{c + "env[1].valueFrom.fieldRef.apiVersion: FieldValueNotSupported"}},
		"no key":               {func(s *corev1.PodSpec) { s.Containers[0].Env[2].ValueFrom.SecretKeyRef.Key = "" }, []string{c + "env[2].valueFrom.secretKeyRef.key: FieldValueRequired"}},
		"empty envFrom":        {func(s *corev1.PodSpec) { s.Containers[0].EnvFrom[0].ConfigMapRef = nil }, []string{c + "envFrom[0]: FieldValueInvalid"}},

		"request above limit":  {func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests["cpu"] = quantity("2") }, []string{c + "resources.requests: FieldValueInvalid"}},
		"negative":             {func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests["memory"] = quantity("-1") }, []string{c + "resources.requests[memory]: FieldValueInvalid"}},
		"unknown resource":     {func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests["color"] = quantity("1") }, []string{c + "resources.requests[color]: FieldValueInvalid"}},
		"kubernetes' resource": {func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests["kubernetes.io/x"] = quantity("1") }, []string{c + "resources.requests[kubernetes.io/x]: FieldValueInvalid"}},
		"bad resource name":    {func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests["a//b"] = quantity("1") }, []string{c + "resources.requests[a//b]: FieldValueInvalid", c + "resources.limits[a//b]: FieldValueRequired"}},
		"huge pages": {func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests["hugepages-2Mi"] = quantity("2Mi") },
			[]string{c + "resources.limits[hugepages-2Mi]: FieldValueRequired"}},
		"huge pages limited": {func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Requests["hugepages-2Mi"], s.Containers[0].Resources.Limits["hugepages-2Mi"] = quantity("4Mi"), quantity("4Mi")
		}, nil},
		"fewer huge pages requested": {func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Requests["hugepages-2Mi"], s.Containers[0].Resources.Limits["hugepages-2Mi"] = quantity("2Mi"), quantity("4Mi")
		}, []string{c + "resources.requests: FieldValueInvalid"}},
		"half a huge page": {func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Requests["hugepages-2Mi"], s.Containers[0].Resources.Limits["hugepages-2Mi"] = quantity("1Mi"), quantity("1Mi")
		}, []string{c + "resources.limits[hugepages-2Mi]: FieldValueInvalid", c + "resources.requests[hugepages-2Mi]: FieldValueInvalid"}},
		"huge pages of no size": {func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Requests["hugepages-x"], s.Containers[0].Resources.Limits["hugepages-x"] = quantity("0"), quantity("0")
		}, []string{c + "resources.limits[hugepages-x]: FieldValueInvalid", c + "resources.requests[hugepages-x]: FieldValueInvalid"}},
		"huge pages alone": {func(s *corev1.PodSpec) {
			s.Containers[0].Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{"hugepages-2Mi": quantity("2Mi")}, Limits: corev1.ResourceList{"hugepages-2Mi": quantity("2Mi")}}
		}, []string{c + "resources: FieldValueForbidden"}},

		"a pod of its own": {func(s *corev1.PodSpec) {
			s.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": quantity("1"), "memory": quantity("2Gi")}, Limits: corev1.ResourceList{"cpu": quantity("1")}}
		}, nil},
		"a pod's devices": {func(s *corev1.PodSpec) {
			s.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"example.com/widget": quantity("2")}, Limits: corev1.ResourceList{"example.com/widget": quantity("2")}}
		}, []string{"spec.resources.limits[example.com/widget]: FieldValueNotSupported", "spec.resources.requests[example.com/widget]: FieldValueNotSupported"}},
		"a pod's storage": {func(s *corev1.PodSpec) {
			s.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"ephemeral-storage": quantity("1Gi")}}
		}, []string{"spec.resources.requests[ephemeral-storage]: FieldValueNotSupported"}},
		"a pod's claims": {func(s *corev1.PodSpec) {
			s.Resources = &corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "x"}}}
		}, []string{"spec.resources.claims: FieldValueForbidden"}},
		"a pod's request above its limit": {func(s *corev1.PodSpec) {
			s.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": quantity("3")}, Limits: corev1.ResourceList{"cpu": quantity("2")}}
		}, []string{"spec.resources.requests: FieldValueInvalid"}},
		"containers request more than the pod": {func(s *corev1.PodSpec) {
			s.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"memory": quantity("1Mi")}}
		}, []string{"spec.resources.requests[memory]: FieldValueInvalid"}},
		"a container's limit above the pod's": {func(s *corev1.PodSpec) {
			s.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": quantity("500m")}}
		}, []string{"spec.resources.containers[0][cpu].limits: FieldValueInvalid"}},
		"containers have more huge pages than the pod": {func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Requests["hugepages-2Mi"], s.Containers[0].Resources.Limits["hugepages-2Mi"] = quantity("4Mi"), quantity("4Mi")
			s.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": quantity("1"), "hugepages-2Mi": quantity("2Mi")}, Limits: corev1.ResourceList{"hugepages-2Mi": quantity("2Mi")}}
		}, []string{"spec.resources.requests[hugepages-2Mi]: FieldValueInvalid", "spec.resources.limits[hugepages-2Mi]: FieldValueInvalid",
			"spec.resources.containers[0][hugepages-2Mi].limits: FieldValueInvalid"}},
		"storage limit": {func(s *corev1.PodSpec) { s.Containers[0].Resources.Limits["ephemeral-storage"] = quantity("1Gi") }, nil},
		"half a device": {func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Limits["example.com/widget"] = quantity("500m")
			s.Containers[0].Resources.Requests["example.com/widget"] = quantity("500m")
		}, []string{c + "resources.limits[example.com/widget]: FieldValueInvalid", c + "resources.requests[example.com/widget]: FieldValueInvalid"}},
		"device requested, not limited": {func(s *corev1.PodSpec) { delete(s.Containers[0].Resources.Limits, "example.com/widget") },
			[]string{c + "resources.limits[example.com/widget]: FieldValueRequired"}},
		"fewer devices requested": {func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests["example.com/widget"] = quantity("1") },
			[]string{c + "resources.requests: FieldValueInvalid"}},

		"privileged without escalation": {func(s *corev1.PodSpec) {
			yes, no := true, false
			s.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: &yes, AllowPrivilegeEscalation: &no}
		}, []string{c + "securityContext.allowPrivilegeEscalation: FieldValueInvalid"}},
		"negative user": {func(s *corev1.PodSpec) { *s.Containers[0].SecurityContext.RunAsUser = -1 }, []string{c + "securityContext.runAsUser: FieldValueInvalid"}},
		"apparmor": {func(s *corev1.PodSpec) {
			s.SecurityContext.AppArmorProfile = &corev1.AppArmorProfile{Type: "Localhost"}
			s.Containers[0].SecurityContext.AppArmorProfile = &corev1.AppArmorProfile{Type: "Some"}
		}, []string{c + "securityContext.appArmorProfile.type: FieldValueNotSupported", "spec.securityContext.appArmorProfile.localhostProfile: FieldValueRequired"}},
		"apparmor's name": {func(s *corev1.PodSpec) {
			s.SecurityContext.AppArmorProfile = &corev1.AppArmorProfile{Type: "Localhost", LocalhostProfile: new(strings.Repeat("a", 4096))}
		}, []string{"spec.securityContext.appArmorProfile.localhostProfile: FieldValueTooLong"}},
		"groups policy": {func(s *corev1.PodSpec) {
			s.SecurityContext.SupplementalGroupsPolicy = new(corev1.SupplementalGroupsPolicyStrict)
		}, nil},
		"no groups policy": {func(s *corev1.PodSpec) {
			s.SecurityContext.SupplementalGroupsPolicy = new(corev1.SupplementalGroupsPolicy("Some"))
		}, []string{"spec.securityContext.supplementalGroupsPolicy: FieldValueNotSupported"}},
		"users of its own": {func(s *corev1.PodSpec) { s.HostUsers = new(false) }, nil},
		"the host's users": {func(s *corev1.PodSpec) { s.HostUsers, s.HostIPC, s.HostPID = new(true), true, true }, nil},
		"users of its own in the host's namespaces": {func(s *corev1.PodSpec) {
			s.HostUsers, s.HostNetwork, s.HostIPC, s.HostPID, s.Containers[0].Ports, s.SecurityContext.Sysctls = new(false), true, true, true, nil, nil
		}, []string{"spec.hostNetwork: FieldValueForbidden", "spec.hostPID: FieldValueForbidden", "spec.hostIPC: FieldValueForbidden"}},
		"default proc": {func(s *corev1.PodSpec) { s.Containers[0].SecurityContext.ProcMount = new(corev1.DefaultProcMount) }, nil},
		"all of proc for users of its own": {func(s *corev1.PodSpec) {
			s.HostUsers, s.Containers[0].SecurityContext.ProcMount = new(false), new(corev1.UnmaskedProcMount)
		}, nil},
		"all of proc": {func(s *corev1.PodSpec) { s.Containers[0].SecurityContext.ProcMount = new(corev1.UnmaskedProcMount) },
			[]string{c + "securityContext.procMount: FieldValueInvalid"}},
		"all of proc for the host's users": {func(s *corev1.PodSpec) {
			s.HostUsers, s.Containers[0].SecurityContext.ProcMount = new(true), new(corev1.UnmaskedProcMount)
		}, []string{c + "securityContext.procMount: FieldValueInvalid"}},
		"another proc": {func(s *corev1.PodSpec) { s.Containers[0].SecurityContext.ProcMount = new(corev1.ProcMountType("Some")) },
			[]string{c + "securityContext.procMount: FieldValueNotSupported"}},
		"shared processes":          {func(s *corev1.PodSpec) { s.ShareProcessNamespace = new(true) }, nil},
		"shared and host processes": {func(s *corev1.PodSpec) { s.ShareProcessNamespace, s.HostPID = new(true), true }, []string{"spec.shareProcessNamespace: FieldValueInvalid"}},
		"local seccomp":             {func(s *corev1.PodSpec) { s.SecurityContext.SeccompProfile.Type = "Localhost" }, []string{"spec.securityContext.seccompProfile.localhostProfile: FieldValueRequired"}},
		"fs group":                  {func(s *corev1.PodSpec) { s.SecurityContext.FSGroup = new(int64(7)) }, nil},
		"negative fs group":         {func(s *corev1.PodSpec) { s.SecurityContext.FSGroup = new(int64(-1)) }, []string{"spec.securityContext.fsGroup: FieldValueInvalid"}},
		"policies of volumes": {func(s *corev1.PodSpec) {
			s.SecurityContext.FSGroupChangePolicy, s.SecurityContext.SELinuxChangePolicy = new(corev1.FSGroupChangeOnRootMismatch), new(corev1.SELinuxChangePolicyRecursive)
		}, nil},
		"no policies of volumes": {func(s *corev1.PodSpec) {
			s.SecurityContext.FSGroupChangePolicy, s.SecurityContext.SELinuxChangePolicy = new(corev1.PodFSGroupChangePolicy("x")), new(corev1.PodSELinuxChangePolicy("y"))
		}, []string{"spec.securityContext.fsGroupChangePolicy: FieldValueNotSupported", "spec.securityContext.seLinuxChangePolicy: FieldValueNotSupported"}},
		"SELinux": {func(s *corev1.PodSpec) { // as every pod of upstream's conformance tests of volumes has it
			s.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Level: "s0"}
			s.Containers[0].SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{User: "u", Role: "r", Type: "t", Level: "s0:c1"}
		}, nil},
		"windows": {func(s *corev1.PodSpec) {
			s.SecurityContext.WindowsOptions = &corev1.WindowsSecurityContextOptions{RunAsUserName: new("ContainerUser")}
		}, []string{"spec.securityContext.windowsOptions: FieldValueForbidden"}},
		"sysctl name":        {func(s *corev1.PodSpec) { s.SecurityContext.Sysctls[0].Name = "Net" }, []string{"spec.securityContext.sysctls[0].name: FieldValueInvalid"}},
		"sysctl of the host": {func(s *corev1.PodSpec) { s.HostNetwork = true }, []string{"spec.securityContext.sysctls[0].name: FieldValueInvalid"}},
		"sysctl twice": {func(s *corev1.PodSpec) {
			s.SecurityContext.Sysctls = append(s.SecurityContext.Sysctls, corev1.Sysctl{Name: "net/core/somaxconn"})
		}, []string{"spec.securityContext.sysctls[1].name: FieldValueDuplicate"}},

		"toleration of nothing":      {func(s *corev1.PodSpec) { s.Tolerations = []corev1.Toleration{{}} }, []string{"spec.tolerations[0].operator: FieldValueInvalid"}},
		"toleration operator":        {func(s *corev1.PodSpec) { s.Tolerations[0].Operator = "Near" }, []string{"spec.tolerations[0].operator: FieldValueNotSupported"}},
		"toleration of numbers":      {func(s *corev1.PodSpec) { s.Tolerations[0].Operator, s.Tolerations[0].Value = "Lt", "-7" }, nil},
		"toleration of no number":    {func(s *corev1.PodSpec) { s.Tolerations[0].Operator, s.Tolerations[0].Value = "Gt", "many" }, []string{"spec.tolerations[0].value: FieldValueInvalid", "spec.tolerations[0].value: FieldValueInvalid"}},
		"toleration for a while":     {func(s *corev1.PodSpec) { s.Tolerations[0].Effect = corev1.TaintEffectNoSchedule }, []string{"spec.tolerations[0].effect: FieldValueInvalid"}},
		"dns policy":                 {func(s *corev1.PodSpec) { s.DNSPolicy = "Guess" }, []string{"spec.dnsPolicy: FieldValueNotSupported"}},
		"dns without server":         {func(s *corev1.PodSpec) { s.DNSConfig = nil }, []string{"spec.dnsConfig.nameservers: FieldValueRequired"}},
		"dns server":                 {func(s *corev1.PodSpec) { s.DNSConfig.Nameservers[0] = "dns.example" }, []string{"spec.dnsConfig.nameservers[0]: FieldValueInvalid"}},
		"dns server of an interface": {func(s *corev1.PodSpec) { s.DNSConfig.Nameservers[0] = "fe80::1%eth0" }, []string{"spec.dnsConfig.nameservers[0]: FieldValueInvalid"}},
		"dns search":                 {func(s *corev1.PodSpec) { s.DNSConfig.Searches[0] = "a b" }, []string{"spec.dnsConfig.searches[0]: FieldValueInvalid"}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := validPod()
			tc.change(&pod.Spec)
			errs := Spec(&pod.Spec, field.NewPath("spec"))
			if got := summary(errs); !slices.Equal(got, tc.want) {
				t.Errorf("errors %v, want %v", errs, tc.want)
			}
		})
	}
}

func TestWarnsOfAnEnvironmentVariableThatHidesAnother(t *testing.T) {
	pod := validPod()
	pod.Spec.Containers[0].Env[2].Name = "A"
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "a"}, {Name: "a"}, {}}
	if got := strings.Join(Warnings(pod), "; "); !strings.Contains(got, `spec.imagePullSecrets[1].name: duplicate name "a"; spec.imagePullSecrets[2].name: invalid empty name ""`) {
		t.Errorf("warnings about pull secrets: %q", got)
	}
	pod.Spec.ImagePullSecrets = nil
	if got := Warnings(pod); len(got) != 1 || !strings.Contains(got[0], "spec.containers[0].env[2]") {
		t.Errorf("warnings %q", got)
	}
}
