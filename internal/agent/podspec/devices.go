package podspec

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/devices"
	"monopod.dev/monopod/internal/devices/answer"
	"monopod.dev/monopod/internal/pods"
)

// ExtendedResources are what a container asks for beyond the resources that Kubernetes itself defines: names with a
// domain outside kubernetes.io, by their whole amount.
func ExtendedResources(c *v1.Container) map[string]int64 {
	var found map[string]int64
	for name, q := range c.Resources.Limits {
		if !pods.IsExtended(name) || q.IsZero() {
			continue
		}
		if found == nil {
			found = map[string]int64{}
		}
		found[string(name)] = q.Value()
	}
	return found
}

// AddDevices adds to the configuration of a container what its devices bring, and the record of them. What the pod's specification says itself
// stays: a variable that it sets to another value is among overridden, as a kubelet has it but does not tell; a path or an annotation that both
// have is an error that names both, for one of them would not be what was asked for. The same file of the host at the same path is no contradiction.
func AddDevices(cfg *cri.ContainerConfig, c *v1.Container, a answer.Answer, record string) (overridden []string, err error) {
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
	if err := addPaths(cfg, c, a); err != nil {
		return nil, err
	}
	for _, d := range a.CDIDevices {
		cfg.CDIDevices = append(cfg.CDIDevices, &cri.CDIDevice{Name: d})
	}
	if record != "" {
		cfg.Annotations[devices.Annotation] = record
	}
	for _, k := range slices.Sorted(maps.Keys(a.Annotations)) {
		if has, ok := cfg.Annotations[k]; ok && has != a.Annotations[k] {
			return nil, fmt.Errorf("%s brings the annotation %q with the value %q, which the node uses itself", someDevice(c), k, a.Annotations[k])
		}
		cfg.Annotations[k] = a.Annotations[k]
	}
	return overridden, nil
}

// addPaths adds what is to be at a path of the container.
func addPaths(cfg *cri.ContainerConfig, c *v1.Container, a answer.Answer) error {
	var places answer.Places
	for _, m := range cfg.Mounts {
		places.AddMount(answer.Mount{HostPath: m.HostPath, ContainerPath: m.ContainerPath, ReadOnly: m.Readonly}, whatIsAt(c, m.ContainerPath))
	}
	for _, d := range cfg.Devices {
		places.AddNode(answer.Node{HostPath: d.HostPath, ContainerPath: d.ContainerPath, Permissions: d.Permissions}, "the pod has a device node of its own")
	}
	taken := func(clash *answer.Clash) error {
		return fmt.Errorf("%s brings %s to %s, where %s", someDevice(c), clash.New, clash.Path, clash.Old.Of)
	}
	device := someDevice(c) + " brings something else"
	for _, m := range a.Mounts {
		switch known, clash := places.AddMount(m, device); {
		case clash != nil:
			return taken(clash)
		case !known:
			cfg.Mounts = append(cfg.Mounts, &cri.Mount{HostPath: m.HostPath, ContainerPath: m.ContainerPath, Readonly: m.ReadOnly})
		}
	}
	for _, n := range a.Nodes {
		switch known, clash := places.AddNode(n, device); {
		case clash != nil:
			return taken(clash)
		case !known:
			cfg.Devices = append(cfg.Devices, &cri.Device{HostPath: n.HostPath, ContainerPath: n.ContainerPath, Permissions: n.Permissions})
		}
	}
	return nil
}

// someDevice is what a container's devices are called where it is not known which of them it is about.
func someDevice(c *v1.Container) string {
	return "a device of the container (" + strings.Join(slices.Sorted(maps.Keys(ExtendedResources(c))), ", ") + ")"
}

// whatIsAt says what a container has at the path of a mount without its devices, and what helps.
func whatIsAt(c *v1.Container, path string) string {
	path = filepath.Clean(path)
	for _, m := range c.VolumeMounts {
		if filepath.Clean(pods.MountPath(&m)) == path {
			return fmt.Sprintf("the pod mounts its volume %q: mount that elsewhere", m.Name)
		}
	}
	if path == filepath.Join("/", c.TerminationMessagePath) {
		return "the container's termination message is: set another terminationMessagePath"
	}
	return "the node mounts a file of its own: whoever provides the device has to bring it elsewhere"
}
