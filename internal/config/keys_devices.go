package config

import (
	"fmt"
	"strconv"
	"strings"

	"monopod.dev/monopod/api/config/v1alpha1"
)

var deviceKeys = []Setting{
	{
		Name: "devices.cdiSpecDirs", Flag: "cdi-spec-dirs", Value: "DIR,...", Common: true, Group: GroupDevices, Roles: Devices | Runtime, Default: "/etc/cdi,/var/run/cdi",
		Words: "directories of CDI specs; later ones take precedence", More: "See [CDI.md](CDI.md).", rule: absolute,
	},
	{
		Name: "devices.cdiAllow", Flag: "cdi-allow", Value: "PATTERN,...", Group: GroupDevices, Roles: Devices, Otherwise: "none",
		Words: "CDI kinds that are resources of the node although devices.cdiDeny or the built-in list excludes them",
		More:  "The built-in list has the kinds that device plugins and drivers write for their own use ([CDI.md](CDI.md)).", rule: pattern,
	},
	{
		Name: "devices.cdiDeny", Flag: "cdi-deny", Value: "PATTERN,...", Group: GroupDevices, Roles: Devices, Otherwise: "none",
		Words: "CDI kinds that are not resources of the node, such as vendor.com/*", More: "With `*/*`, only those of devices.cdiAllow are.", rule: pattern,
	},
	{
		Name: "devices.cdiSharedNodes", Flag: "cdi-shared-nodes", Value: "PATTERN,...", Group: GroupDevices, Roles: Devices, Otherwise: "none",
		Words: "host device nodes that several devices share, in addition to the known ones",
		More:  "Known are /dev/nvidiactl, /dev/kfd and others. Two devices that have only such nodes in common do not count as the same hardware.", rule: pattern,
	},
	{
		Name: "devices.sharing", Flag: "device-sharing", Value: "PATTERN:N,...", Group: GroupDevices, Roles: Devices, Otherwise: "none",
		Words: "let N containers at a time use a device: PATTERN is a CDI kind, or one device (KIND=NAME); the containers are not isolated from each other",
		More: "In the file: a list of `{devices: PATTERN, shares: N}`, N from 1 to 1024. The first entry that matches a device counts. If none does, the device's CDI spec decides " +
			"([HOST-DEVICES.md](HOST-DEVICES.md#one-device-in-several-containers)).",
		parse: parseSharing, beside: sharing,
	},
	{
		Name: "runtime.ignoreCDIAnnotations", Flag: "ignore-cdi-annotations", Value: "BOOL", Group: GroupDevices, Roles: Runtime, Default: "false",
		Words: "true: ignore CDI devices requested by annotations of containers (cdi.k8s.io/...)",
		More:  "Then only the field CDI_devices of CRI can request them. Older kubelets use the annotations for device plugins ([CDI.md](CDI.md#ways-in)).",
	},
	{
		Name: "devices.pluginDir", Flag: "device-plugin-dir", Value: "DIR", Group: GroupDevices, Roles: Devices, Default: "/var/lib/kubelet/device-plugins", Ephemeral: runDirMark + "/device-plugins",
		Words: "directory in which device plugins register", More: "They find the socket kubelet.sock there ([DEVICES.md](DEVICES.md)).", rule: both(absolute, socket("kubelet.sock")),
	},
	{
		Name: "devices.pluginRegistryDir", Flag: "device-plugin-registry-dir", Value: "DIR", Group: GroupDevices, Roles: Devices, Default: "/var/lib/kubelet/plugins_registry", Ephemeral: runDirMark + "/plugins_registry",
		Words: "directory in which the agent looks for plugins' sockets, as a kubelet does", rule: absolute,
	},
	{
		Name: "devices.pluginGracePeriod", Flag: "device-plugin-grace-period", Value: "DURATION", Group: GroupDevices, Roles: Devices, Default: "5m",
		Words: "how long devices stay listed, as unhealthy, after their plugin has gone", rule: notNegative("be a time, such as 5m"),
	},
	{
		Name: "devices.podResourcesSocket", Flag: "pod-resources-socket", Value: "FILE", Group: GroupDevices, Roles: Agent, Default: "/var/lib/kubelet/pod-resources/kubelet.sock", Ephemeral: runDirMark + "/pod-resources.sock",
		Words: "unix socket of the PodResources API", More: "Exporters ask it which pod has which devices ([DEVICES.md](DEVICES.md#podresources)).", rule: both(absolute, socket("")),
	},
	{
		Name: "devices.topologyManagerPolicy", Flag: "topology-manager-policy", Value: "POLICY", Group: GroupDevices, Roles: Devices, Default: "none",
		Words: "NUMA alignment of devices: none, best-effort, restricted or single-numa-node", More: "The policies are a kubelet's ([DEVICES.md](DEVICES.md#numa-nodes)).",
		rule: oneOf("none", "best-effort", "restricted", "single-numa-node"),
	},
	{
		Name: "devices.topologyManagerScope", Flag: "topology-manager-scope", Value: "SCOPE", Group: GroupDevices, Roles: Devices, Default: "container",
		Words: "which devices are aligned together: those of each container (container) or of the whole pod (pod)", rule: oneOf("container", "pod"),
	},
	{
		Name: "devices.topologyManagerPolicyOptions", Flag: "topology-manager-policy-options", Value: "NAME=VALUE,...", Group: GroupDevices, Roles: Devices, Otherwise: "none",
		Words: "options of the NUMA policy: prefer-closest-numa-nodes=true, max-allowable-numa-nodes=8 to 16", More: "In the file it is a map.",
	},
}

func sharing(c *v1alpha1.NodeConfiguration, f *faults) {
	for _, s := range c.Devices.Sharing {
		if must := pattern(s.Devices); must != "" {
			f.add("devices.sharing", s.Devices, must)
		}
		if s.Shares < 1 || s.Shares > v1alpha1.MaxDeviceShares {
			f.add("devices.sharing", fmt.Sprintf("%s:%d", s.Devices, s.Shares), fmt.Sprintf("have from 1 to %d shares", v1alpha1.MaxDeviceShares))
		}
	}
}

func parseSharing(c *v1alpha1.NodeConfiguration, text string) error {
	c.Devices.Sharing = nil
	for item := range strings.SplitSeq(text, ",") {
		at := strings.LastIndexByte(item, ':')
		n, err := strconv.ParseInt(item[at+1:], 10, 32)
		if at < 1 || err != nil {
			return fmt.Errorf("%q says nothing: use PATTERN:N, such as vendor.com/gpu:4", item)
		}
		c.Devices.Sharing = append(c.Devices.Sharing, v1alpha1.DeviceSharing{Devices: item[:at], Shares: int32(n)})
	}
	return nil
}
