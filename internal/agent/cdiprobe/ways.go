package cdiprobe

import (
	"maps"
	"slices"
	"strings"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/devices/source"
)

// way is how a container asks for CDI devices. A runtime may honour one and not the other.
type way int

const (
	// byField: ContainerConfig.CDIDevices.
	byField way = iota
	// byAnnotation: annotations of the container that begin with cdi.k8s.io/, as some device plugins answer.
	byAnnotation
	ways
)

// probeAnnotation is what the probe asks by.
const probeAnnotation = source.CDIAnnotations + "monopod.dev_probe"

// Asks says whether a container asks for CDI devices, in any way. So does one with an annotation that lists what are no CDI devices: a runtime that
// does not ignore them refuses it.
func Asks(cfg *criv1.ContainerConfig) bool {
	return slices.ContainsFunc(asked(cfg), func(names []string) bool { return len(names) > 0 })
}

// asked are the devices that a container asks for, by way.
func asked(cfg *criv1.ContainerConfig) [][]string {
	names := make([][]string, ways)
	for _, d := range cfg.GetCDIDevices() {
		names[byField] = append(names[byField], d.GetName())
	}
	names[byAnnotation] = source.AnnotatedCDI(cfg.GetAnnotations())
	return names
}

// askFor changes a configuration to ask for these devices in one way, and for no others.
func askFor(cfg *criv1.ContainerConfig, w way, devices ...string) {
	cfg.CDIDevices = nil
	maps.DeleteFunc(cfg.Annotations, func(key, _ string) bool { return strings.HasPrefix(key, source.CDIAnnotations) })
	switch {
	case len(devices) == 0:
	case w == byAnnotation:
		if cfg.Annotations == nil {
			cfg.Annotations = map[string]string{}
		}
		cfg.Annotations[probeAnnotation] = strings.Join(devices, ",")
	default:
		for _, d := range devices {
			cfg.CDIDevices = append(cfg.CDIDevices, &criv1.CDIDevice{Name: d})
		}
	}
}
