// Package cdi has the commands that show and check the host's CDI specs.
package cdi

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/kit/oneline"
)

// Command is 'monopod cdi'.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cdi",
		Short: "Show and check the host's CDI specs: list, inspect, validate",
		Long: `Shows and checks the specs of the Container Device Interface on this host, as a node of this version reads them. No
node needs to run.

The directories of specs are those of the configuration (devices.cdiSpecDirs; by default /etc/cdi and
/var/run/cdi), or those of --spec-dir. Later ones take precedence. 'monopod device ls' shows whether the devices
can be granted now, and which containers have them.

Exit codes: 0 if everything was done, 1 if something failed or a file is invalid (standard error says what), 2 for
an invalid command line or configuration.`,
		Example: `  monopod cdi list
  monopod cdi inspect nvidia.com/gpu=0
  monopod cdi validate *.yaml`,
	}
	cmd.AddCommand(newListCommand(), newInspectCommand(), newValidateCommand())
	return cmd
}

// specFolders gives a command --spec-dir and --config. What it returns reads the folders.
func specFolders(cmd *cobra.Command) func() (*cdispec.Set, error) {
	cfg := cli.AddConfiguration(cmd, config.Devices)
	cli.ShowOnly(cmd, "config")
	dirs := cmd.Flags().StringArray("spec-dir", nil, "`DIR` of specs, instead of those of the configuration; repeat it for several: later ones take precedence")
	return func() (*cdispec.Set, error) {
		folders := *dirs
		for _, dir := range folders {
			if dir == "" {
				return nil, &cli.UsageError{Err: errors.New("--spec-dir is empty: name a folder")}
			}
		}
		if len(folders) == 0 {
			c, err := cfg.Load()
			if err != nil {
				return nil, err
			}
			folders = c.Devices.CDISpecDirs
		}
		return new(cdispec.Reader).Load(folders), nil
	}
}

// printFaults tells what is wrong with the folders, a line each.
func printFaults(cmd *cobra.Command, faults []cdispec.Fault) {
	for _, f := range faults {
		fmt.Fprintln(cmd.ErrOrStderr(), "problem:", oneline.Of(f.String()))
	}
}
