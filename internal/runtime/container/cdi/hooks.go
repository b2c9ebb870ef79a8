package cdi

import (
	"fmt"
	"slices"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	cdi "tags.cncf.io/container-device-interface/specs-go"

	"monopod.dev/monopod/internal/cdispec"
)

// WithHooks completes the error of a container's creation, start or removal with the hooks that CDI devices have brought in: when one has
// failed the OCI runtime tells its kind and its words, but not whose it is.
func (i *Injector) WithHooks(cfg *cri.ContainerConfig, err error) error {
	names, wrong := requested(cfg, !i.cfg.IgnoreAnnotations)
	if err == nil || wrong != nil || len(names) == 0 {
		return err
	}
	set := i.reader.Load(i.cfg.Dirs)
	var devices []*cdispec.Device
	for _, name := range names {
		if d, ok := set.Devices[name]; ok {
			devices = append(devices, d)
		}
	}
	hooks := hooksOf(devices)
	if len(hooks) == 0 {
		return err
	}
	return fmt.Errorf("%w; CDI devices have given it these hooks: %s", err, strings.Join(listed(hooks), ", "))
}

// hooksOf tells the hooks that devices bring in: each kind with its program once a file, whichever of the file's devices have it, however often. That is
// what leads to the one that has failed, and a vendor's file has the same program for many purposes and for each device.
func hooksOf(devices []*cdispec.Device) []string {
	type key struct{ file, hook string }
	var order []key
	brought := map[key][]string{}
	for _, d := range devices {
		for _, h := range slices.Concat([]*cdi.Hook(nil), d.File.Spec.ContainerEdits.Hooks, d.Edits.Hooks) {
			k := key{d.File.Path, h.HookName + " " + h.Path}
			if brought[k] == nil {
				order = append(order, k)
			}
			if !slices.Contains(brought[k], d.Name) {
				brought[k] = append(brought[k], d.Name)
			}
		}
	}
	hooks := make([]string, 0, len(order))
	for _, k := range order {
		hooks = append(hooks, fmt.Sprintf("%s (%s, for %s)", k.hook, k.file, strings.Join(listed(brought[k]), ", ")))
	}
	return hooks
}

// listed bounds a list.
func listed(all []string) []string {
	if more := len(all) - maxListed; more > 0 {
		return append(all[:maxListed:maxListed], fmt.Sprintf("and %d more", more))
	}
	return all
}
