package cdi

import (
	"context"
	"slices"

	"monopod.dev/monopod/internal/devices/answer"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/source"
)

var (
	_ source.Source     = (*Source)(nil)
	_ source.Effectless = (*Source)(nil)
	_ source.Identifier = (*Source)(nil)
)

// Name implements source.Source.
func (s *Source) Name() string { return "cdi" }

// Prepare implements source.Source: the runtime injects CDI devices by their names.
func (s *Source) Prepare(_ context.Context, _ source.Container, resource string, names []string) (a answer.Answer, _ error) {
	for _, n := range names {
		if name := inventory.CDIName(resource, device(n)); !slices.Contains(a.CDIDevices, name) {
			a.CDIDevices = append(a.CDIDevices, name)
		}
	}
	return a, nil
}

// PreparesWithoutEffect implements source.Effectless.
func (s *Source) PreparesWithoutEffect() {}
