package podspec

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/agent/userns"
	"monopod.dev/monopod/internal/pods"
)

// SandboxInput is what a sandbox's configuration is made of.
type SandboxInput struct {
	Pod     *v1.Pod
	Attempt uint32
	// CgroupParent is the pod's cgroup: see CgroupParent.
	CgroupParent string
	// LogDir is the pod's log directory.
	LogDir string
	// NodeName is the host name of a pod on the host's network.
	NodeName string
	// HostDNS is the host's resolver configuration.
	HostDNS HostDNS
	// ClusterDNS are the addresses of the cluster's DNS; none: pods that want it get the host's servers. ClusterDomain is the domain that it serves, such as
	// cluster.local.
	ClusterDNS    []string
	ClusterDomain string
	// IDs are those of the host that the pod's user namespace has; nil: it has the host's.
	IDs *userns.Range
}

// Sandbox makes the configuration of a pod's sandbox. Check says whether it can be made, Notices what is to be told about it.
func Sandbox(in SandboxInput) *cri.PodSandboxConfig {
	pod := in.Pod
	hostname, _ := sandboxHostname(in) // Check tells of the error
	dns, _ := podDNS(in)
	cfg := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{
			Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: in.Attempt,
		},
		Hostname:     hostname,
		LogDirectory: in.LogDir,
		DnsConfig:    dns,
		PortMappings: portMappings(pod),
		Labels:       sandboxLabels(pod),
		Annotations:  pod.Annotations,
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    in.CgroupParent,
			SecurityContext: sandboxSecurity(pod),
			Resources:       podResources(pod),
			Overhead:        overhead(pod),
		},
	}
	cfg.Linux.SecurityContext.NamespaceOptions.UsernsOptions = userNamespace(in.IDs)
	if sc := pod.Spec.SecurityContext; sc != nil && len(sc.Sysctls) > 0 {
		cfg.Linux.Sysctls = map[string]string{}
		for _, s := range sc.Sysctls {
			cfg.Linux.Sysctls[s.Name] = s.Value
		}
	}
	return cfg
}

func portMappings(pod *v1.Pod) []*cri.PortMapping {
	var all []*cri.PortMapping
	for role, c := range pods.Containers(&pod.Spec) {
		for _, p := range c.Ports {
			if p.HostPort == 0 || !role.Main() {
				continue
			}
			m := &cri.PortMapping{ContainerPort: p.ContainerPort, HostPort: p.HostPort, HostIp: p.HostIP}
			switch p.Protocol {
			case v1.ProtocolUDP:
				m.Protocol = cri.Protocol_UDP
			case v1.ProtocolSCTP:
				m.Protocol = cri.Protocol_SCTP
			default:
				m.Protocol = cri.Protocol_TCP
			}
			all = append(all, m)
		}
	}
	return all
}

// MaxName is the longest name of a file, in bytes.
const MaxName = 255

// LogDir is the name of a pod's log directory, below the directory of all pods' logs.
func LogDir(ref Ref) string { return ref.Namespace + "_" + ref.Name + "_" + string(ref.UID) }

// IsLogDir says that a name is that of the log directory of the pod of that UID.
func IsLogDir(name string, uid types.UID) bool {
	return uid != "" && strings.HasSuffix(name, "_"+string(uid)) && strings.Count(name, "_") == 2
}
