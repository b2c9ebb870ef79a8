package plugin

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/devices/answer"
)

// answerOf makes an answer of what a plugin allocated for the one container that it was asked for. The error names the field that is wrong.
func answerOf(resp *v1beta1.AllocateResponse) (answer.Answer, error) {
	responses := resp.GetContainerResponses()
	if len(responses) != 1 {
		return answer.Answer{}, fmt.Errorf("container_responses has %d entries for a request with 1 container", len(responses))
	}
	r := responses[0]
	a := answer.Answer{Envs: maps.Clone(r.GetEnvs()), Annotations: maps.Clone(r.GetAnnotations())}
	if err := checkEnvs(a.Envs); err != nil {
		return answer.Answer{}, err
	}
	if err := checkAnnotations(a.Annotations); err != nil {
		return answer.Answer{}, err
	}
	if err := addPaths(&a, r); err != nil {
		return answer.Answer{}, err
	}
	for i, d := range r.GetCdiDevices() {
		if _, _, err := cdispec.ParseName(d.GetName()); err != nil {
			return answer.Answer{}, fmt.Errorf("cdi_devices[%d].name is not a CDI name: %w", i, plain(err))
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

// addPaths adds what is to be at a path of the container. What is said twice is given once; two things at one path contradict each other.
func addPaths(a *answer.Answer, r *v1beta1.ContainerAllocateResponse) error {
	var places answer.Places
	taken := func(c *answer.Clash) error {
		return fmt.Errorf("%s: container_path %s is that of %s, which is not the same: %s", c.New.Of, brief(c.Path), c.Old.Of, c.Old)
	}
	for i, m := range r.GetMounts() {
		field, mount := fmt.Sprintf("mounts[%d]", i), answer.Mount{HostPath: m.GetHostPath(), ContainerPath: m.GetContainerPath(), ReadOnly: m.GetReadOnly()}
		if err := checkPaths(mount.HostPath, mount.ContainerPath); err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
		switch known, clash := places.AddMount(mount, field); {
		case clash != nil:
			return taken(clash)
		case !known:
			a.Mounts = append(a.Mounts, mount)
		}
	}
	for i, d := range r.GetDevices() {
		field, node := fmt.Sprintf("devices[%d]", i), answer.Node{HostPath: d.GetHostPath(), ContainerPath: d.GetContainerPath()}
		err := checkPaths(node.HostPath, node.ContainerPath)
		if err == nil {
			node.Permissions, err = permissionsOf(d.GetPermissions())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
		switch known, clash := places.AddNode(node, field); {
		case clash != nil:
			return taken(clash)
		case !known:
			a.Nodes = append(a.Nodes, node)
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
