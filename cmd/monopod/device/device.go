// Package device has the commands that list devices, give devices of the host to pods, and test device plugins.
package device

import (
	"github.com/spf13/cobra"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/devices/hostnode"
)

// Command is 'monopod device'.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "device",
		Short: "List devices, give devices of the host to pods, test device plugins",
		Long: `Works with devices. 'ls' asks a running node, over its administration socket ('monopod up' or 'monopod node'),
which only root can reach. 'add' gives a device of the host to pods, and 'rm' takes it back. 'test' tests a
device plugin.

A device belongs to a resource (example.com/widget), which pods request in their limits. It comes from a CDI
spec or a device plugin. 'monopod cdi' shows what the host's CDI specs say, with or without a running node.

Exit codes: 0 if everything was done, 1 if something failed (standard error says what), 2 for an invalid command
line.`,
		Example: `  monopod device ls
  monopod device ls --watch example.com/widget
  monopod device test -- ./my-device-plugin`,
	}
	var socket string
	cli.AdminSocketFlag(cmd, &socket)
	cmd.AddCommand(newListCommand(&socket), newAddCommand(hostnode.ThisHost()), newRemoveCommand(&socket), newTestCommand())
	return cmd
}
