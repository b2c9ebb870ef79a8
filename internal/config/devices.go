package config

import (
	"fmt"
	"path"
	"path/filepath"

	"monopod.dev/monopod/api/config/v1alpha1"
)

// devices checks what needs no look at the host; the options of the topology manager are checked with the host's NUMA nodes.
func (v *faults) devices(d *v1alpha1.Devices) {
	for _, dir := range d.CDISpecDirs {
		v.absolute("devices.cdiSpecDirs", dir)
	}
	v.patterns("devices.cdiAllow", d.CDIAllow)
	v.patterns("devices.cdiDeny", d.CDIDeny)
	v.patterns("devices.cdiSharedNodes", d.CDISharedNodes)
	for _, s := range d.Sharing {
		v.patterns("devices.sharing", []string{s.Devices})
		if s.Shares < 1 || s.Shares > v1alpha1.MaxDeviceShares {
			v.add("devices.sharing", fmt.Sprintf("%s:%d", s.Devices, s.Shares), fmt.Sprintf("have from 1 to %d shares", v1alpha1.MaxDeviceShares))
		}
	}
	v.absolute("devices.pluginDir", d.PluginDir)
	v.socket("devices.pluginDir", filepath.Join(d.PluginDir, "kubelet.sock"))
	v.absolute("devices.pluginRegistryDir", d.PluginRegistryDir)
	v.absolute("devices.podResourcesSocket", d.PodResourcesSocket)
	v.socket("devices.podResourcesSocket", d.PodResourcesSocket)
	if t := d.PluginGracePeriod.Duration; t < 0 {
		v.add("devices.pluginGracePeriod", t, "be a time, such as 5m")
	}
	v.oneOf("devices.topologyManagerPolicy", d.TopologyManagerPolicy, "none", "best-effort", "restricted", "single-numa-node")
	v.oneOf("devices.topologyManagerScope", d.TopologyManagerScope, "container", "pod")
}

// patterns are those of package path.
func (v *faults) patterns(key string, list []string) {
	for _, p := range list {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			v.add(key, p, `be names or patterns, such as "vendor.com/*"`)
		}
	}
}
