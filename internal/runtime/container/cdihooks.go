package container

import (
	"fmt"
	"slices"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	cdi "tags.cncf.io/container-device-interface/specs-go"

	"monopod.dev/monopod/internal/cdispec"
)

// withHooks completes the error of a container's creation, start or removal with the hooks that CDI devices have brought in: when one has
// failed the OCI runtime tells its kind and its words, but not whose it is.
func (m *Manager) withHooks(cfg *cri.ContainerConfig, err error) error {
	names, wrong := cdiNames(cfg, !m.cfg.IgnoreCDIAnnotations)
	if err == nil || wrong != nil || len(names) == 0 {
		return err
	}
	set := m.cdi.Load(m.cfg.CDISpecDirs)
	var hooks []string
	for _, name := range names {
		if d, ok := set.Devices[name]; ok {
			hooks = append(hooks, hooksOf(d)...)
		}
	}
	if len(hooks) == 0 {
		return err
	}
	if more := len(hooks) - maxListed; more > 0 {
		hooks = append(hooks[:maxListed], fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("%w; CDI devices have given it these hooks: %s", err, strings.Join(hooks, ", "))
}

func hooksOf(d *cdispec.Device) []string {
	var hooks []string
	for _, h := range slices.Concat([]*cdi.Hook(nil), d.File.Spec.ContainerEdits.Hooks, d.Edits.Hooks) {
		hooks = append(hooks, fmt.Sprintf("%s %s (%s of %s)", h.HookName, h.Path, d.Name, d.File.Path))
	}
	return hooks
}
