package cdi

import (
	"path/filepath"
)

// DefaultDeny are the kinds that device plugins and drivers write for their own use: what they name in their answers. Counting them as
// resources beside the plugin's would offer the same hardware under a second name that nobody is meant to ask for.
var DefaultDeny = []string{
	// The prefix of drivers of Kubernetes' dynamic resource allocation, a kind a driver ("k8s." and the driver's name; classes such as
	// device and claim), and of NVIDIA's device plugin, k8s.device-plugin.nvidia.com/gpu.
	"k8s.*/*",
	// Names of the Kubernetes project's own, such as its test driver's.
	"k8s.io/*", "*.k8s.io/*",
	// NVIDIA's operator gives its own containers all GPUs and the driver's tools by this one.
	"management.nvidia.com/*",
	// NVIDIA's container runtime makes these up as a container starts.
	"runtime.nvidia.com/*",
}

// pluginFiles are patterns of the names of spec files that only a device plugin's answers refer to, whatever kind they say.
var pluginFiles = newPatterns([]string{
	"sriov-dp-*", // the SR-IOV network device plugin's, of kinds such as nvidia.com/net-pci
})

// advertiser decides which kinds are resources. What is not one can be injected by its name all the same.
type advertiser struct{ allow, deny, own patterns }

func newAdvertiser(allow, deny []string) advertiser {
	return advertiser{allow: newPatterns(allow), deny: newPatterns(deny), own: newPatterns(DefaultDeny)}
}

// advertises says whether the devices of a kind in a file count. What is allowed by name goes before what is denied, and both before
// what is known of others' kinds: so a list of few is a denial of "*/*" with exceptions.
func (a advertiser) advertises(kind, path string) bool {
	if a.allow.match(kind) {
		return true
	}
	return !a.deny.match(kind) && !a.own.match(kind) && !pluginFiles.match(filepath.Base(path))
}
