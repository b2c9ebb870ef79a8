// Package answer is what a source of devices says of those that it was asked for: what the container is given with them. It holds values, and merges
// the answers of several sources to one container.
package answer

// Answer is what a container is given with its devices. It is stored, and what a restart of the container is made from: its JSON is a file format.
type Answer struct {
	// CDIDevices are fully qualified CDI names, "vendor.com/class=name", for CRI's ContainerConfig.CDIDevices.
	CDIDevices []string `json:"cdiDevices,omitempty"`
	// Nodes are device nodes for CRI's ContainerConfig.Devices.
	Nodes []Node `json:"nodes,omitempty"`
	// Mounts are for CRI's ContainerConfig.Mounts.
	Mounts []Mount `json:"mounts,omitempty"`
	// Envs are environment variables, Annotations the container's annotations in the runtime.
	Envs        map[string]string `json:"envs,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Node is a device node; Permissions are of "r", "w" and "m".
type Node struct {
	HostPath      string `json:"hostPath"`
	ContainerPath string `json:"containerPath"`
	Permissions   string `json:"permissions"`
}

// Mount is a bind mount.
type Mount struct {
	HostPath      string `json:"hostPath"`
	ContainerPath string `json:"containerPath"`
	ReadOnly      bool   `json:"readOnly,omitempty"`
}

// RefusedError says that a container is never to have the devices that it asks for: its pod fails.
type RefusedError struct {
	// Resource is the name of the resource.
	Resource string
	// Err is why, in the source's words.
	Err error
}

// Error names the resource.
func (e *RefusedError) Error() string { return e.Resource + " is refused: " + e.Err.Error() }

// Unwrap returns why.
func (e *RefusedError) Unwrap() error { return e.Err }
