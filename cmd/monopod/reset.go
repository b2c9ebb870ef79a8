package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/node"
)

func newResetCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Remove everything that a stopped node has made on this machine: pods, images, objects, network, directories",
		Long: `Removes everything that a node with these settings has made on this machine: its pods and containers, the
executor, the bridge and its rules, the cgroups, and the data and run directories, with the API's objects and
the images. Stop the node first. This cannot be undone.`,
		Example: `  monopod reset --yes`,
		Args:    noArgs,
	}
	cfg := addConfiguration(cmd, config.All)
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm the removal; without it nothing is removed")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := cfg.load()
		if err != nil {
			return err
		}
		if !yes {
			return &usageError{fmt.Errorf("this removes the pods, the images and the API's objects in %s and %s: repeat it with --yes to do so", c.DataDir, c.RunDir)}
		}
		return node.Reset(cmd.Context(), options(c, false))
	}
	return cmd
}
