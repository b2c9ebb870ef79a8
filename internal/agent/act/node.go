package act

import (
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/agent/podspec"
	"monopod.dev/monopod/internal/host/cgroup/place"
	"monopod.dev/monopod/internal/pods"
)

// HostResolvConf is the file by which the host's own programs resolve names. Where it sends them to systemd-resolved, that one's servers are in resolvedConf.
const (
	HostResolvConf = "/etc/resolv.conf"
	resolvedConf   = "/run/systemd/resolve/resolv.conf"
)

// Node is what pods have of their node, whatever they are.
type Node struct {
	Name string
	// IPs are its addresses, which pods on its network have.
	IPs []string
	// CgroupRoot is the cgroup that the pods' cgroups are below, CgroupDriver says by whose names; LogsDir is the directory of all pods' logs.
	CgroupRoot, LogsDir string
	CgroupDriver        func() place.Driver
	// Limits and Allocatable are what of the machine containers, and all pods, may have now.
	Limits      func() podspec.NodeLimits
	Allocatable func() v1.ResourceList
	// ResolvConf is the host's resolver configuration that pods get, as it is; empty: that of the host's own programs, without what pods do not reach.
	ResolvConf string
	// ClusterDNS and ClusterDomain are where the names of services are asked for, and their domain.
	ClusterDNS    []string
	ClusterDomain string
	// Notice tells the node's owner of something once, as a warning.
	Notice func(reason, message string)
}

// hostDNS is the host's resolver configuration.
func (n *Node) hostDNS() (dns podspec.HostDNS) {
	read := func(path string) (podspec.DNS, error) {
		content, err := os.ReadFile(path)
		return podspec.ParseResolvConf(string(content)), err
	}
	if chosen := n.ResolvConf; chosen != "" {
		var err error
		if dns.Own, err = read(chosen); err != nil {
			n.Notice(podspec.ReasonDNSConfigForming, fmt.Sprintf("pods get no name servers of the host: agent.resolvConf: %v", err))
		}
		dns.Chosen = true
		return dns
	}
	// A host without a resolver configuration has none to hand on, and one without systemd-resolved has nothing behind it.
	dns.Own, _ = read(HostResolvConf)
	dns.Behind, _ = read(resolvedConf)
	return dns
}

// sandbox is what a sandbox of the pod is made of.
func (n *Node) sandbox(pod *v1.Pod, attempt uint32) podspec.SandboxInput {
	return podspec.SandboxInput{
		Pod: pod, Attempt: attempt,
		CgroupParent: place.Pods{Root: n.CgroupRoot, Driver: n.CgroupDriver()}.Pod(string(pod.UID), string(pods.QOS(pod))),
		LogDir:       n.logDir(pod), NodeName: n.Name, HostDNS: n.hostDNS(), ClusterDNS: n.ClusterDNS, ClusterDomain: n.ClusterDomain,
	}
}

// logDir is the directory of the pod's logs.
func (n *Node) logDir(pod *v1.Pod) string {
	return filepath.Join(n.LogsDir, podspec.LogDir(podspec.Ref{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name}))
}

// podIPs are the pod's addresses.
func (n *Node) podIPs(pod *v1.Pod, sandbox *plan.Sandbox) []string {
	if pod.Spec.HostNetwork {
		return n.IPs
	}
	if sandbox == nil {
		return nil
	}
	return sandbox.IPs
}
