package podspec

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

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
	HostDNS DNS
}

// DNS is a resolver configuration.
type DNS struct{ Servers, Searches, Options []string }

// Sandbox makes the configuration of a pod's sandbox.
func Sandbox(in SandboxInput) *cri.PodSandboxConfig {
	pod := in.Pod
	cfg := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{
			Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: in.Attempt,
		},
		Hostname:     sandboxHostname(pod, in.NodeName),
		LogDirectory: in.LogDir,
		DnsConfig:    dnsConfig(pod, in.HostDNS),
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
	if sc := pod.Spec.SecurityContext; sc != nil && len(sc.Sysctls) > 0 {
		cfg.Linux.Sysctls = map[string]string{}
		for _, s := range sc.Sysctls {
			cfg.Linux.Sysctls[s.Name] = s.Value
		}
	}
	return cfg
}

// Hostname is the host name inside the pod.
func Hostname(pod *v1.Pod, nodeName string) string {
	if o := pod.Spec.HostnameOverride; o != nil {
		return *o
	}
	if pod.Spec.HostNetwork {
		return nodeName
	}
	name := cmp.Or(pod.Spec.Hostname, pod.Name)
	// The kernel's limit is 64 bytes; the API's for a label is 63.
	if len(name) > 63 {
		name = strings.TrimRight(name[:63], "-.")
	}
	return name
}

// sandboxHostname is empty where the name is the host's, which a sandbox on its network cannot change: runtimes refuse another one.
func sandboxHostname(pod *v1.Pod, nodeName string) string {
	if pod.Spec.HostNetwork {
		return ""
	}
	return Hostname(pod, nodeName)
}

// dnsConfig follows dnsPolicy. There is no cluster DNS yet, so ClusterFirst gets the host's servers as well.
func dnsConfig(pod *v1.Pod, host DNS) *cri.DNSConfig {
	dns := host
	if pod.Spec.DNSPolicy == v1.DNSNone {
		dns = DNS{}
	}
	cfg := &cri.DNSConfig{
		Servers: slices.Clone(dns.Servers), Searches: slices.Clone(dns.Searches), Options: slices.Clone(dns.Options),
	}
	extra := pod.Spec.DNSConfig
	if extra == nil {
		return cfg
	}
	add := func(to []string, more ...string) []string {
		for _, m := range more {
			if !slices.Contains(to, m) {
				to = append(to, m)
			}
		}
		return to
	}
	cfg.Servers = add(cfg.Servers, extra.Nameservers...)
	cfg.Searches = add(cfg.Searches, extra.Searches...)
	for _, o := range extra.Options {
		// An option of the pod replaces the host's of the same name.
		cfg.Options = slices.DeleteFunc(cfg.Options, func(have string) bool {
			name, _, _ := strings.Cut(have, ":")
			return name == o.Name
		})
		if o.Value != nil && *o.Value != "" {
			cfg.Options = append(cfg.Options, o.Name+":"+*o.Value)
		} else {
			cfg.Options = append(cfg.Options, o.Name)
		}
	}
	return cfg
}

// ParseResolvConf reads a resolv.conf(5). Lines that it does not know are skipped, as resolvers do.
func ParseResolvConf(content string) DNS {
	var dns DNS
	for line := range strings.Lines(content) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch f[0] {
		case "nameserver":
			dns.Servers = append(dns.Servers, f[1])
		case "search", "domain":
			// The last one wins.
			dns.Searches = f[1:]
		case "options":
			dns.Options = append(dns.Options, f[1:]...)
		}
	}
	return dns
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

// LogDir is the name of a pod's log directory, below the directory of all pods' logs.
func LogDir(ref Ref) string { return ref.Namespace + "_" + ref.Name + "_" + ref.UID }

// IsLogDir says that a name is that of the log directory of the pod of that UID.
func IsLogDir(name, uid string) bool {
	return uid != "" && strings.HasSuffix(name, "_"+uid) && strings.Count(name, "_") == 2
}
