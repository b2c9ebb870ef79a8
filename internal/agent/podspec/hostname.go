package podspec

import (
	"cmp"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

const (
	// maxHostname is the API's limit of a label, one less than the kernel's of a host name.
	maxHostname = 63
	// maxFQDN is the kernel's limit of a host name (sethostname(2)).
	maxFQDN = 64
)

// Hostname is the host name of the pod, without its domain; what a pod on the host's network sees is the node's.
func Hostname(pod *v1.Pod, nodeName string) string {
	if o := pod.Spec.HostnameOverride; o != nil {
		return shortened(*o)
	}
	if pod.Spec.HostNetwork {
		return nodeName
	}
	return shortened(cmp.Or(pod.Spec.Hostname, pod.Name))
}

func shortened(name string) string {
	if len(name) > maxHostname {
		name = strings.TrimRight(name[:maxHostname], "-.")
	}
	return name
}

// HostDomain is the domain of the pod in the cluster's DNS: SUBDOMAIN.NAMESPACE.svc.CLUSTERDOMAIN. It is empty for a pod without a subdomain, and for one
// whose name is overridden, which is in no domain.
func HostDomain(pod *v1.Pod, clusterDomain string) string {
	if pod.Spec.Subdomain == "" || pod.Spec.HostnameOverride != nil {
		return ""
	}
	domain := pod.Spec.Subdomain + "." + pod.Namespace + ".svc"
	if clusterDomain != "" {
		domain += "." + clusterDomain
	}
	return domain
}

// Check says why no sandbox can be made of the input, in a kubelet's words; nil: Sandbox makes its configuration.
func Check(in SandboxInput) error {
	_, err := sandboxHostname(in)
	return err
}

// sandboxHostname is what the kernel is to call the pod's host. It is empty where the name is the host's, which a sandbox on its network cannot
// change: runtimes refuse another one.
func sandboxHostname(in SandboxInput) (string, error) {
	pod := in.Pod
	if pod.Spec.HostNetwork {
		return "", nil
	}
	name := Hostname(pod, in.NodeName)
	domain, whole := HostDomain(pod, in.ClusterDomain), pod.Spec.SetHostnameAsFQDN
	if whole == nil || !*whole || domain == "" {
		return name, nil
	}
	fqdn := name + "." + domain
	if len(fqdn) > maxFQDN {
		return name, fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is the max, %d characters requested)",
			fqdn, maxFQDN, len(fqdn))
	}
	return fqdn, nil
}
