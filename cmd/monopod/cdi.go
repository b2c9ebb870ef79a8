package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/kit/oneline"
)

func newCDICommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cdi",
		Short: "Look at the host's CDI specs: list, inspect, validate",
		Long: `Looks at the specs of the Container Device Interface on this host, as a node of this version reads them. No node has to run.

The folders of specs are those of the configuration (devices.cdiSpecDirs; /etc/cdi and /var/run/cdi where there is none), of which the later wins,
or those of --spec-dir. Whether the devices can be granted now, and who has them, is told by 'monopod device ls'.

Exit codes: 0 when all was done, 1 when something failed or a file is not valid (standard error says what), 2 for a command line or a
configuration that cannot be used.`,
		Example: `  monopod cdi list
  monopod cdi inspect nvidia.com/gpu=0
  monopod cdi validate *.yaml`,
	}
	cmd.AddCommand(newCDIListCommand(), newCDIInspectCommand(), newCDIValidateCommand())
	return cmd
}

// specFolders gives a command --spec-dir and --config. What it returns reads the folders.
func specFolders(cmd *cobra.Command) func() (*cdispec.Set, error) {
	cfg := addConfiguration(cmd, config.Devices)
	showOnly(cmd, "config")
	dirs := cmd.Flags().StringArray("spec-dir", nil, "`DIR` of specs, instead of the configuration's; give it several times for several, the later wins")
	return func() (*cdispec.Set, error) {
		folders := *dirs
		for _, dir := range folders {
			if dir == "" {
				return nil, &usageError{errors.New("--spec-dir is empty: name a folder")}
			}
		}
		if len(folders) == 0 {
			c, err := cfg.load()
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
