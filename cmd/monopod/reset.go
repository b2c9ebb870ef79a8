package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/node"
)

func newResetCommand() *cobra.Command {
	var yes, volumes bool
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Remove everything that a stopped node has made on this machine: pods, images, objects, network, directories",
		Long: `Removes everything that a node with these settings has made on this machine: its pods and containers, the
executor, the bridge and its rules, the cgroups, and the data and run directories, with the API's objects and
the images. The volumes of claims stay, with what is in them, unless --volumes is given: without --yes the
command names them and removes nothing. Stop the node first. This cannot be undone.`,
		Example: `  monopod reset --yes
  monopod reset --volumes         # says whose volumes would be removed
  monopod reset --volumes --yes`,
		Args: cli.NoArgs,
	}
	cfg := cli.AddConfiguration(cmd, config.All)
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm the removal; without it nothing is removed")
	cmd.Flags().BoolVar(&volumes, "volumes", false, "remove the volumes of claims too, with the data in them")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := cfg.Load()
		if err != nil {
			return err
		}
		if !yes {
			had, err := node.Volumes(c)
			if err != nil {
				return err
			}
			return &cli.UsageError{Err: fmt.Errorf("this removes the pods, the images and the API's objects in %s and %s%s: repeat it with --yes to do so", c.DataDir, c.RunDir, ofVolumes(had, volumes))}
		}
		return node.Reset(cmd.Context(), options(c, false), volumes)
	}
	return cmd
}

// ofVolumes says what becomes of the volumes of claims, which are known by their directories.
func ofVolumes(had map[string][]string, removed bool) string {
	var all []string
	for _, dir := range slices.Sorted(maps.Keys(had)) {
		all = append(all, strings.Join(had[dir], ", ")+" in "+dir)
	}
	switch claims := strings.Join(all, " and of "); {
	case len(all) == 0:
		return ""
	case removed:
		return fmt.Sprintf(", and ALL DATA of %s", claims)
	default:
		return fmt.Sprintf("; the volumes of %s stay, unless --volumes is given", claims)
	}
}
