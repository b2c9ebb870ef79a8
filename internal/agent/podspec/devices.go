package podspec

import (
	"fmt"
	"maps"
	"slices"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/internal/devices/source"
)

// AddDevices adds to a container's configuration what its devices bring, and the record of them. What the pod's specification says itself
// stays: a variable that it sets to another value is among overridden, as a kubelet has it but does not tell; a path or an annotation that both
// have is an error, for one of them would not be what was asked for.
func AddDevices(cfg *cri.ContainerConfig, a source.Answer, record string) (overridden []string, err error) {
	own := map[string]string{}
	for _, e := range cfg.Envs {
		own[e.Key] = string(e.Value)
	}
	var envs []*cri.KeyValue
	for _, k := range slices.Sorted(maps.Keys(a.Envs)) {
		switch v, has := own[k]; {
		case !has:
			envs = append(envs, &cri.KeyValue{Key: k, Value: []byte(a.Envs[k])})
		case v != a.Envs[k]:
			overridden = append(overridden, k)
		}
	}
	cfg.Envs = append(envs, cfg.Envs...)
	for _, m := range a.Mounts {
		if slices.ContainsFunc(cfg.Mounts, func(o *cri.Mount) bool { return o.ContainerPath == m.ContainerPath }) {
			return nil, fmt.Errorf("a device of the container brings a mount at %s, where the pod mounts a volume: mount that elsewhere", m.ContainerPath)
		}
		cfg.Mounts = append(cfg.Mounts, &cri.Mount{HostPath: m.HostPath, ContainerPath: m.ContainerPath, Readonly: m.ReadOnly})
	}
	for _, n := range a.Nodes {
		cfg.Devices = append(cfg.Devices, &cri.Device{HostPath: n.HostPath, ContainerPath: n.ContainerPath, Permissions: n.Permissions})
	}
	for _, d := range a.CDIDevices {
		cfg.CDIDevices = append(cfg.CDIDevices, &cri.CDIDevice{Name: d})
	}
	for k, v := range a.Annotations {
		if has, ok := cfg.Annotations[k]; ok && has != v {
			return nil, fmt.Errorf("a device of the container brings the annotation %q with the value %q, which the node uses itself", k, v)
		}
		cfg.Annotations[k] = v
	}
	if record != "" {
		cfg.Annotations[devices.Annotation] = record
	}
	return overridden, nil
}
