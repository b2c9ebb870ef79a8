package device

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/admin/client"
	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/devices/hostspecs"
	"monopod.dev/monopod/internal/kit/oneline"
)

// removedDevice is what `monopod device rm` has taken away.
type removedDevice struct {
	Device   string `json:"device"`
	Resource string `json:"resource"`
	Name     string `json:"name"`
	File     string `json:"file"`
	// Holders are the containers that have it all the same (--force).
	Holders []string `json:"holders"`
	Notes   []string `json:"notes"`
}

func newRemoveCommand(socket *string) *cobra.Command {
	var force bool
	var format string
	cmd := &cobra.Command{
		Use:     "rm NAME",
		Aliases: []string{"remove"},
		Short:   "Take a device of the host away from pods",
		Long: `Removes a device that 'monopod device add' has added. NAME is the device's name, or its full name
device.monopod.dev/CLASS=NAME. No more pods get the device. Specs that you did not make with 'monopod device add'
are not touched.

A running node is asked whether a container has the device. If one has, the device is not removed, unless you give
--force: then the container keeps the device, and is not started again. If no node runs, this is not checked.

Exit codes: 0 if the device was removed; 1 if there is no such device, a container has it, or something failed; 2
for an invalid command line or configuration.`,
		Example: `  monopod device rm ttyUSB0
  monopod device rm --force device.monopod.dev/serial=modem`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &cli.UsageError{Err: fmt.Errorf("name one device, not %d; see '%s --help'", len(args), cmd.CommandPath())}
			}
			return nil
		},
	}
	folders := specFolder(cmd) // first: it hides the flags that there are
	cmd.Flags().BoolVarP(&force, "force", "f", false, "also remove a device that a container has")
	cmd.Flags().Lookup("spec-dir").Usage = "`DIR` of the spec (default: the directories of devices.cdiSpecDirs)"
	cli.FormatFlag(cmd, &format, cli.AsText, cli.AsJSON)
	cli.CompleteNames(cmd, false, func(context.Context) (names []string, err error) {
		_, dirs, err := folders()
		if err != nil {
			return nil, err
		}
		for _, d := range (hostspecs.Specs{Dirs: dirs, Host: cdispec.ThisHost()}).Devices() {
			names = append(names, d.Qualified())
		}
		return names, nil
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir, dirs, err := folders()
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("spec-dir") {
			dirs = []string{dir}
		}
		gone, err := removeDevice(cmd.Context(), hostspecs.Specs{Dirs: dirs, Host: cdispec.ThisHost()}, args[0], *socket, force)
		if err != nil {
			return err
		}
		if format == cli.AsJSON {
			return cli.PrintJSON(cmd.OutOrStdout(), gone)
		}
		for _, n := range gone.Notes {
			fmt.Fprintln(cmd.ErrOrStderr(), "note:", oneline.Of(n))
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "removed   %s\nfile      %s\n", gone.Device, gone.File)
		return err
	}
	return cmd
}

func removeDevice(ctx context.Context, specs hostspecs.Specs, name, socket string, force bool) (*removedDevice, error) {
	d, err := specs.Find(name)
	if err != nil {
		return nil, err
	}
	gone := &removedDevice{Device: d.Qualified(), Resource: d.Kind, Name: d.Name, File: d.File, Holders: []string{}, Notes: []string{}}
	holders, err := holdersOf(ctx, socket, d)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED):
		gone.Notes = append(gone.Notes, fmt.Sprintf("no node runs at %s, so nobody was asked whether a container has the device", socket))
	case err != nil && !force:
		return nil, fmt.Errorf("it is not known whether a container has %s: %w; remove it anyway with --force", d.Qualified(), err)
	case err != nil:
		gone.Notes = append(gone.Notes, fmt.Sprintf("it is not known whether a container has it: %v", err))
	case len(holders) > 0 && !force:
		return nil, fmt.Errorf("device %s is in use by %s. Delete the pod, or use --force: the container keeps the device and will not be restarted: %w",
			d.Qualified(), strings.Join(holders, ", "), errdefs.ErrFailedPrecondition)
	case len(holders) > 0:
		gone.Holders = holders
		gone.Notes = append(gone.Notes, fmt.Sprintf("%s has it, and is not started again without it", strings.Join(holders, ", ")))
	}
	if err := specs.Remove(d); errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("%s cannot be removed: %w; run this as root", d.File, err)
	} else if err != nil {
		return nil, err
	}
	return gone, nil
}

// holdersOf asks the node that runs which containers have a device.
func holdersOf(ctx context.Context, socket string, d hostspecs.Device) (holders []string, err error) {
	err = cli.WithNode(socket, func(c *client.Client) error {
		list, err := c.Devices(ctx, d.Kind)
		if errdefs.IsNotFound(err) {
			return nil // the node does not know the resource
		}
		for _, known := range list.Devices {
			if known.Name == d.Name || slices.Contains(known.Aliases, d.Name) {
				for _, h := range known.Holders {
					holders = append(holders, h.String())
				}
			}
		}
		return err
	})
	return holders, err
}
