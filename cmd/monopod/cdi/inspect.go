package cdi

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/cdispec"
)

// cdiDetails is what `monopod cdi inspect` tells of a device.
type cdiDetails struct {
	Name string `json:"name"`
	File string `json:"file"`
	// Version is the cdiVersion of the file.
	Version string `json:"cdiVersion"`
	// Precedence is the place of the file's folder among all, from 1; the greatest wins. Folders is how many there are.
	Precedence int `json:"precedence"`
	Folders    int `json:"folders"`
	// Overrides are the files of earlier folders that define the device, too.
	Overrides []string `json:"overrides,omitempty"`
	// SpecEdits are made once for all devices of the file, and before DeviceEdits, which are the device's own.
	SpecEdits   *specs.ContainerEdits `json:"specEdits,omitempty"`
	DeviceEdits *specs.ContainerEdits `json:"deviceEdits,omitempty"`
	// HostNodes are the device nodes of both, on the host.
	HostNodes []cdiNode `json:"hostNodes"`
	// Missing are the ways in which the host is not as the spec says; none: the device can be injected.
	Missing []string `json:"missing"`
}

// cdiNode is a device node on the host.
type cdiNode struct {
	Path string `json:"path"`
	// State is "ok", or what is wrong with it.
	State string `json:"state"`
}

func newInspectCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "inspect NAME...",
		Short: "Show what a container gets with a device",
		Long: `Shows what a container gets with a device. NAME is vendor.com/class=device. The output has

- the edits that the file makes for all its devices (specEdits), which are applied first and once, and the device's
  own edits (deviceEdits);
- the file that is used, and the files that it overrides;
- the device nodes on the host, each with its state;
- everything that the spec names and this host lacks.

Exit codes: 0 if all devices were found, whatever the host lacks; 1 if one is not defined, or is defined by two files
of one directory; 2 for an invalid command line (such as a NAME that cannot be one) or configuration.`,
		Example: `  monopod cdi inspect nvidia.com/gpu=0
  monopod cdi inspect -o json nvidia.com/gpu=0 | jq -r '.[0].missing[]'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &cli.UsageError{Err: fmt.Errorf("name at least one device, vendor.com/class=device; see '%s --help'", cmd.CommandPath())}
			}
			for _, name := range args {
				if _, _, err := cdispec.ParseName(name); err != nil {
					return &cli.UsageError{Err: err}
				}
			}
			return nil
		},
	}
	load := specFolders(cmd)
	cli.FormatFlag(cmd, &format, cli.AsYAML, cli.AsJSON)
	cli.CompleteNames(cmd, true, func(context.Context) ([]string, error) {
		set, err := load()
		if err != nil {
			return nil, err
		}
		return slices.Collect(maps.Keys(set.Devices)), nil
	})
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		set, err := load()
		if err != nil {
			return err
		}
		all := []cdiDetails{}
		for _, name := range names {
			d, ok := set.Devices[name]
			if !ok {
				printFaults(cmd, set.Faults)
				return undefined(set, name)
			}
			all = append(all, inspectCDI(set, d, cdispec.ThisHost()))
		}
		return cli.PrintValue(cmd.OutOrStdout(), format, all)
	}
	return cmd
}

func inspectCDI(set *cdispec.Set, d *cdispec.Device, host cdispec.Host) cdiDetails {
	details := cdiDetails{
		Name: d.Name, File: d.File.Path, Version: d.File.Spec.Version, Precedence: d.File.Priority + 1, Folders: len(set.Dirs), Overrides: overridden(set, d),
		HostNodes: []cdiNode{}, Missing: append([]string{}, missing(host, d)...),
	}
	for _, part := range []struct {
		edits *specs.ContainerEdits
		into  **specs.ContainerEdits
	}{{&d.File.Spec.ContainerEdits, &details.SpecEdits}, {d.Edits, &details.DeviceEdits}} {
		if countEdits(part.edits) != (cdiCounts{}) {
			*part.into = part.edits
		}
		for _, n := range part.edits.DeviceNodes {
			node := cdiNode{Path: cdispec.HostPath(n), State: "ok"}
			if drift := host.CheckNode(n); drift != nil {
				node.State = drift.Detail
			}
			if !slices.Contains(details.HostNodes, node) {
				details.HostNodes = append(details.HostNodes, node)
			}
		}
	}
	return details
}

// undefined is the error for a device that no usable spec defines.
func undefined(set *cdispec.Set, name string) error {
	for _, f := range set.Faults {
		if f.Device == name {
			return fmt.Errorf("%s: %s", strings.Join(f.Paths, ", "), f.Message)
		}
	}
	kind, device, _ := strings.Cut(name, "=")
	var others []string
	for _, n := range sortedNames(set) {
		if other, ok := strings.CutPrefix(n, kind+"="); ok {
			others = append(others, other)
		}
	}
	if len(others) == 0 {
		return fmt.Errorf("no spec that can be used in %s defines devices of kind %s; 'monopod cdi list' has those that there are", strings.Join(set.Dirs, ", "), kind)
	}
	const most = 20
	if more := len(others) - most; more > 0 {
		others = append(others[:most:most], fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("kind %s has no device %q; it has %s", kind, device, strings.Join(others, ", "))
}
