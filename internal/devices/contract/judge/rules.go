package judge

// rule is what a check is about, in the same words whatever was found.
type rule struct{ name, api, remedy string }

// Names lists the checks in the order of the report.
func Names() []string {
	all := make([]string, len(rules))
	for i, r := range rules {
		all[i] = r.name
	}
	return all
}

func ruleOf(name string) (rule, bool) {
	for _, r := range rules {
		if r.name == name {
			return r, true
		}
	}
	return rule{}, false
}

var rules = []rule{
	{"register/call", "Registration.Register(RegisterRequest) at " + kubeletSocket + ": a plugin registers when it starts",
		"dial unix://" + kubeletSocket + " and call v1beta1.Registration.Register with version, endpoint, resource_name and options; while the socket is not there, try again"},
	{"register/version", "RegisterRequest.version: the version of the API the plugin was built against; nodes speak \"v1beta1\"",
		"set RegisterRequest.version to v1beta1.Version of k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"},
	{"register/resource", "RegisterRequest.resource_name: the name that pods ask for, an extended resource, DOMAIN/NAME",
		"register a name like \"example.com/gpu\", under a domain of yours that is not kubernetes.io"},
	{"register/endpoint", "RegisterRequest.endpoint: the name of the plugin's socket; its path is path.Join(\"" + pluginsFolder + "\", endpoint)",
		"register the bare name of the socket (\"gpu.sock\"), and serve it in " + pluginsFolder + " before Register or right after it has succeeded"},
	{"register/options", "DevicePlugin.GetDevicePluginOptions returns the DevicePluginOptions that RegisterRequest.options has, too",
		"implement GetDevicePluginOptions, and fill RegisterRequest.options from the same function"},

	{"list/first", "DevicePlugin.ListAndWatch returns a stream of ListAndWatchResponse, the first one at once",
		"send all devices as soon as ListAndWatch is called, before waiting for any change"},
	{"list/ids", "Device.ID: unique, at most 63 characters; it is the only name of the device, also after restarts",
		"give each device an ID of its own that stays the same (a serial number, a UUID); hash what is longer than 63 characters"},
	{"list/health", "Device.health: \"Healthy\" or \"Unhealthy\" (constants.go); nodes grant nothing else than \"Healthy\"",
		"use v1beta1.Healthy and v1beta1.Unhealthy: the words are compared as they are"},
	{"list/topology", "Device.topology.nodes[].ID: a NUMA node of this host; no topology at all where it is not known or does not matter",
		"tell nodes that are in /sys/devices/system/node, and leave topology out (nil) where the kernel says -1"},
	{"list/size", "ListAndWatchResponse: kubelets take messages of 4 MiB, which is gRPC's usual limit; this node takes 64 MiB",
		"use shorter IDs, or offer fewer devices"},
	{"list/again", "DevicePlugin.ListAndWatch: a node that connects anew calls it again, and is told all devices again",
		"let each call of ListAndWatch send the whole list first; end the old call when stream.Context() is done, and share no channel of which only one call gets each value"},
	{"list/later", "ListAndWatchResponse: each list replaces the one before, and has to be as the first one: IDs, health, topology",
		"make every list by the same code, from all devices, and not by appending to the last one"},
	{"list/stream", "DevicePlugin.ListAndWatch: a new list is sent when a device changes or goes; the stream stays open for as long as the plugin runs",
		"return from ListAndWatch only when stream.Context() is done or the plugin ends, and send a list only when something has changed"},

	{"allocate/one", "DevicePlugin.Allocate(AllocateRequest) with one of the devices in container_requests[0].devices_ids",
		"answer Allocate for every healthy device of the list; do what takes long in advance, or in PreStartContainer"},
	{"allocate/each", "DevicePlugin.Allocate(AllocateRequest) with each healthy device, one at a time",
		"report a device as Unhealthy in ListAndWatch when it cannot be allocated"},
	{"allocate/several", "ContainerAllocateRequest.devices_ids: a container may get several devices", "answer for all of devices_ids, not only for the first"},
	{"allocate/all", "ContainerAllocateRequest.devices_ids: a container may get all devices", "answer for all of devices_ids, not only for the first"},
	{"allocate/same", "AllocateRequest: a node that has lost an answer, or that was booted, asks for the same devices again",
		"make the answer a function of devices_ids, and allow an Allocate of devices that were allocated before: nodes do not tell when a container ends"},
	{"allocate/containers", "AllocateRequest.container_requests: a response for each request (nodes of today send one)",
		"append one ContainerAllocateResponse to container_responses for each of container_requests"},
	{"allocate/unknown", "AllocateRequest with an ID that is not in the list (a device may have gone meanwhile): an error, by which the pod fails",
		"look each ID up, and return an error that names the one that is not known"},
	{"allocate/odd", "AllocateRequest without requests, without IDs, with an ID twice, with an ID of 64 KiB: any answer, or an error",
		"check the request's fields before they are used; never index a list of the request without a look at its length"},

	{"answer/responses", "AllocateResponse.container_responses: one for each of AllocateRequest.container_requests",
		"append one ContainerAllocateResponse for each container request"},
	{"answer/content", "ContainerAllocateResponse: envs, mounts, devices, annotations, cdi_devices are what the container gets of the device",
		"answer with what a container needs to use the device"},
	{"answer/envs", "ContainerAllocateResponse.envs: environment variables, by name",
		"use names without '=' and zero bytes that are not empty"},
	{"answer/paths", "Mount and DeviceSpec: host_path and container_path are absolute paths, each container_path once",
		"answer with absolute paths, and with no two things at one path of the container"},
	{"answer/permissions", "DeviceSpec.permissions: one or more of r, w and m", "use \"rw\", and \"m\" only where a container makes device nodes by itself"},
	{"answer/host-paths", "Mount.host_path and DeviceSpec.host_path: they are on the host; a DeviceSpec's is a device node",
		"look whether the path is there before answering, and report the device as Unhealthy when it is not"},
	{"answer/cdi", "CDIDevice.name: a fully qualified CDI name, vendor.com/class=name, that a CDI spec of the host defines",
		"what the line names has to be there before the first Allocate is answered: install a hook's program, load the driver, write the spec (to /var/run/cdi); 'monopod cdi validate FILE' says what is wrong with one"},
	{"answer/usable", "ContainerAllocateResponse, by the rules of Monopod's node (docs/DEVICES.md)", "mend what is named: the pod would fail with these words"},

	{"prefer/answers", "DevicePlugin.GetPreferredAllocation, where DevicePluginOptions.get_preferred_allocation_available is set; nodes wait 1.5 s or not at all for advice",
		"answer from what is known already, or do not set get_preferred_allocation_available"},
	{"prefer/fits", "ContainerPreferredAllocationResponse.deviceIDs: allocation_size IDs of available_deviceIDs, all of must_include_deviceIDs among them",
		"begin with must_include_deviceIDs, add others of available_deviceIDs until there are allocation_size, and name none twice"},
	{"prefer/odd", "PreferredAllocationRequest that cannot be met (more than there are, none, IDs that are not known): any answer, or an error",
		"check allocation_size against the lengths of the lists before anything is indexed"},
	{"start/answers", "DevicePlugin.PreStartContainer, where DevicePluginOptions.pre_start_required is set: before each start of a container, within 30 s",
		"answer within 30 s, and also for devices that were started before: a container that is started again has the same ones"},
	{"start/odd", "PreStartContainerRequest with an ID that is not known: an error", "look each ID up, and return an error that names the one that is not known"},

	{"restart/node", "A kubelet that starts removes all sockets in " + pluginsFolder + " and makes kubelet.sock anew; the plugin has to register again",
		"watch the folder (inotify): when kubelet.sock is created, or the plugin's own socket is removed, serve a new socket and register again"},
	{"restart/serves", "After a restart of the node the plugin's socket is a new one, and ListAndWatch tells the devices under the same IDs",
		"make and serve the socket anew before registering again: the node has removed the old one"},
	{"restart/kubelet-socket", "kubelet.sock is made anew and the plugin's socket stays: nodes that remove no sockets",
		"watch for the creation of kubelet.sock, too"},
	{"restart/own-socket", "The plugin's socket is removed and kubelet.sock stays: a node that wants to be told again",
		"watch for the removal of the plugin's own socket, too"},
	{"restart/refused", "Registration: a plugin is expected to terminate when its registration fails; one that tries again now and then works as well",
		"end with an error, or try again after a pause that grows, and log the node's words"},

	{"node/used", "Monopod's node takes the plugin, counts its devices, and grants one", "see the other checks; 'journalctl -u monopod' has the node's words"},
	{"end/signal", "A plugin in a pod is stopped by SIGTERM, and killed 30 s later", "handle SIGTERM: stop the gRPC server and end"},
	{"end/processes", "A plugin that ends leaves no processes", "end the processes that the plugin has started"},
	{"run/alive", "A plugin runs for as long as its node; whoever started it has to start it again when it ends",
		"find out why it ended: its last words are below the report"},
}

const (
	pluginsFolder = "/var/lib/kubelet/device-plugins"
	kubeletSocket = pluginsFolder + "/kubelet.sock"
)
