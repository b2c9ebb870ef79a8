package ocispec

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// devices returns the nodes beyond those that every OCI runtime makes (/dev/null and so on; runtime-spec, "Default
// Devices"), and the rules of the device cgroup beyond those for them: nothing but what is listed, or, for a
// privileged container, everything.
func devices(in Input) ([]specs.LinuxDevice, []specs.LinuxDeviceCgroup) {
	var nodes []specs.LinuxDevice
	put := func(d Device) {
		node := specs.LinuxDevice{Path: d.Path, Type: d.Type, Major: d.Major, Minor: d.Minor,
			FileMode: new(fs.FileMode(d.FileMode)), UID: new(d.UID), GID: new(d.GID)}
		if i := slices.IndexFunc(nodes, func(n specs.LinuxDevice) bool { return n.Path == d.Path }); i >= 0 {
			nodes[i] = node // the later one wins: CRI's over the host's
		} else {
			nodes = append(nodes, node)
		}
	}
	privileged := in.Container.GetLinux().GetSecurityContext().GetPrivileged()
	rules := []specs.LinuxDeviceCgroup{{Allow: privileged, Access: "rwm"}}
	if privileged {
		for _, d := range in.Host.Devices {
			put(d)
		}
	}
	for _, d := range in.Devices {
		put(d)
		access := d.Permissions
		if access == "" {
			access = "rwm"
		}
		if !privileged && d.Type != "p" { // a FIFO is no device to the device cgroup
			rules = append(rules, specs.LinuxDeviceCgroup{Allow: true, Type: d.Type, Major: new(d.Major), Minor: new(d.Minor), Access: access})
		}
	}
	return nodes, rules
}

func checkDevice(d *cri.Device) error {
	field := "devices[" + d.GetHostPath() + "]."
	switch {
	case !path.IsAbs(d.GetHostPath()):
		return invalid(field+"host_path", "%q is not an absolute path", d.GetHostPath())
	case !path.IsAbs(d.GetContainerPath()):
		return invalid(field+"container_path", "%q is not an absolute path", d.GetContainerPath())
	case strings.Trim(d.GetPermissions(), "rwm") != "":
		return invalid(field+"permissions", "%q is not made of r, w and m", d.GetPermissions())
	}
	return nil
}
