package volumes

import (
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Devices returns the volumes that a container has as block devices, which were set up: it may read and write them, and make nodes of them, as CRI has it; or only read them.
func (m *Manager) Devices(pod *v1.Pod, c *v1.Container) (all []*cri.Device, err error) {
	for i := range c.VolumeDevices {
		d := &c.VolumeDevices[i]
		v, kind, err := m.volume(pod, d.Name)
		if err != nil {
			return nil, fmt.Errorf("volumeDevice %s of container %s: %w", d.Name, c.Name, err)
		}
		source, err := kind.Mount(v)
		if err == nil && source.Device == "" {
			err = fmt.Errorf("volume %s has volumeMode Filesystem, but is specified in volumeDevices", d.Name)
		}
		// The runtime gets the node itself, whatever becomes of links to it.
		node := source.Device
		if err == nil {
			node, err = filepath.EvalSymlinks(source.Device)
		}
		if err != nil {
			return nil, fmt.Errorf("volumeDevice %s of container %s: %w", d.Name, c.Name, err)
		}
		permissions := "mrw"
		if source.ReadOnly {
			permissions = "r"
		}
		all = append(all, &cri.Device{HostPath: node, ContainerPath: filepath.Join("/", d.DevicePath), Permissions: permissions})
	}
	return all, nil
}
