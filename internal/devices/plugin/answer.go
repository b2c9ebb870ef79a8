package plugin

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/devices/source"
)

// answerOf makes an answer of what a plugin allocated for the one container that it was asked for. The error names the field that is wrong.
func answerOf(resp *v1beta1.AllocateResponse) (source.Answer, error) {
	responses := resp.GetContainerResponses()
	if len(responses) != 1 {
		return source.Answer{}, fmt.Errorf("container_responses has %d entries for a request with 1 container", len(responses))
	}
	r := responses[0]
	a := source.Answer{Envs: maps.Clone(r.GetEnvs()), Annotations: maps.Clone(r.GetAnnotations())}
	if err := checkEnvs(a.Envs); err != nil {
		return source.Answer{}, err
	}
	if err := checkAnnotations(a.Annotations); err != nil {
		return source.Answer{}, err
	}
	mounts, nodes := map[string]source.Mount{}, map[string]source.Node{} // by where they are in the container
	for i, m := range r.GetMounts() {
		mount := source.Mount{HostPath: m.GetHostPath(), ContainerPath: m.GetContainerPath(), ReadOnly: m.GetReadOnly()}
		err := checkPaths(mount.HostPath, mount.ContainerPath)
		if err == nil {
			a.Mounts, err = addOnce(a.Mounts, mounts, mount, mount.ContainerPath)
		}
		if err != nil {
			return source.Answer{}, fmt.Errorf("mounts[%d]: %w", i, err)
		}
	}
	for i, d := range r.GetDevices() {
		node := source.Node{HostPath: d.GetHostPath(), ContainerPath: d.GetContainerPath()}
		err := checkPaths(node.HostPath, node.ContainerPath)
		if err == nil {
			node.Permissions, err = permissionsOf(d.GetPermissions())
		}
		if err == nil {
			a.Nodes, err = addOnce(a.Nodes, nodes, node, node.ContainerPath)
		}
		if err != nil {
			return source.Answer{}, fmt.Errorf("devices[%d]: %w", i, err)
		}
	}
	for i, d := range r.GetCdiDevices() {
		if _, _, err := cdispec.ParseName(d.GetName()); err != nil {
			return source.Answer{}, fmt.Errorf("cdi_devices[%d].name is not a CDI name: %w", i, plain(err))
		}
		if !slices.Contains(a.CDIDevices, d.GetName()) {
			a.CDIDevices = append(a.CDIDevices, d.GetName())
		}
	}
	return a, nil
}

func checkEnvs(envs map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(envs)) {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return fmt.Errorf("envs: %s is not the name of an environment variable: it must not be empty and have no '=' and no zero byte", brief(name))
		}
		if strings.ContainsRune(envs[name], 0) {
			return fmt.Errorf("envs: the value of %s has a zero byte: %s", brief(name), brief(envs[name]))
		}
	}
	return nil
}

// checkAnnotations: those that ask for CDI devices must name some, for no runtime that reads them would create the container otherwise.
func checkAnnotations(annotations map[string]string) error {
	if value, ok := annotations[""]; ok {
		return fmt.Errorf("annotations: a key is empty (its value is %s)", brief(value))
	}
	for key, name := range cdispec.Annotated(annotations) {
		if _, _, err := cdispec.ParseName(name); err != nil {
			return fmt.Errorf("annotations: the value of %s is not a list of CDI names: %w", brief(key), plain(err))
		}
	}
	return nil
}

func checkPaths(host, container string) error {
	for _, p := range []struct{ field, path string }{{"host_path", host}, {"container_path", container}} {
		if !filepath.IsAbs(p.path) || strings.ContainsRune(p.path, 0) {
			return fmt.Errorf("%s %s must be an absolute path", p.field, brief(p.path))
		}
	}
	if filepath.Clean(container) == "/" {
		return fmt.Errorf("container_path %s is the container's root", brief(container))
	}
	return nil
}

// permissionsOf puts the letters into their usual order.
func permissionsOf(s string) (string, error) {
	if s == "" || strings.Trim(s, "rwm") != "" {
		return "", fmt.Errorf("permissions %s must be one or more of the letters r, w and m", brief(s))
	}
	var p strings.Builder
	for _, letter := range "rwm" {
		if strings.ContainsRune(s, letter) {
			p.WriteRune(letter)
		}
	}
	return p.String(), nil
}

// addOnce adds what is not there yet. Two things at one place of the container contradict each other.
func addOnce[T comparable](list []T, places map[string]T, one T, place string) ([]T, error) {
	other, taken := places[filepath.Clean(place)]
	switch {
	case !taken:
		places[filepath.Clean(place)] = one
		return append(list, one), nil
	case other == one:
		return list, nil
	}
	return nil, fmt.Errorf("container_path %s is that of an earlier entry, which is not the same", brief(place))
}
