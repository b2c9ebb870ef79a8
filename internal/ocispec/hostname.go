package ocispec

import (
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// maxHostname is what the kernel holds (sethostname(2)), maxHostLabel what a label of it may have (RFC 1123), in bytes.
	maxHostname  = 64
	maxHostLabel = 63
)

// checkHostname refuses what is no host name: it is written into files that programs of all kinds read. Letters of both cases and
// the underscore are taken, which RFC 1123 and Kubernetes do not have, and other runtimes do.
//
// A sandbox in the node's network has the node's name, and none of its own: "Hostname could only be empty when the pod network
// namespace is NODE", says CRI; kubelets leave it empty there, and other runtimes refuse it.
func checkHostname(sandbox *cri.PodSandboxConfig) error {
	name := sandbox.GetHostname()
	network := sandbox.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork()
	switch {
	case name == "":
		return nil
	case network == cri.NamespaceMode_NODE:
		return invalid("hostname", "%q is given while the network is the node's (linux.security_context.namespace_options.network is NODE), and with it its name: leave it empty", name)
	case len(name) > maxHostname:
		return invalid("hostname", "%q has %d bytes, a host name has %d at most", name, len(name), maxHostname)
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > maxHostLabel || label[0] == '-' || strings.HasSuffix(label, "-") || strings.Trim(label, hostnameBytes) != "" {
			return invalid("hostname", "%q: it is made of parts with a dot between them, each of letters, digits, - (not at an end) and _, and of 1 to %d bytes", name, maxHostLabel)
		}
	}
	return nil
}

const hostnameBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
