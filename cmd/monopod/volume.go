package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/admin/client"
	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/kit/binarysize"
	"monopod.dev/monopod/internal/kit/oneline"
)

func newVolumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "volume",
		Short: "List, copy and back up the volumes of claims",
		Long: `Works with the volumes of claims of a running node ('monopod up'), over its administration socket, which only
root can reach.

  a snapshot   what a claim had at one moment, on the same disk. It takes room only for what changes afterwards
  an export    all that a claim has, in one tar file, for a backup or another machine

Both make new claims ('restore', 'import'). No command here changes or removes what an existing claim has.

Exit codes: 0 if everything was done, 1 if something failed (standard error says what), 2 for an invalid command
line.`,
		Example: `  monopod volume ls
  monopod volume snapshot shop/data --name before-upgrade
  monopod volume restore before-upgrade shop/data-old
  monopod volume export shop/data | zstd > data.tar.zst`,
	}
	var socket string
	cli.AdminSocketFlag(cmd, &socket)
	cmd.AddCommand(newVolumeListCommand(&socket), newVolumeSnapshotCommand(&socket), newVolumeRestoreCommand(&socket), newVolumeExportCommand(&socket), newVolumeImportCommand(&socket))
	return cmd
}

func newVolumeListCommand(socket *string) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the volumes of claims: whose they are, and how full",
		Long: `Lists the volumes that a node has made for claims. Each line is a volume:

  CLAIM   the claim that it was made for, NAMESPACE/NAME
  POD     a pod that uses the claim; +N: N more do. "-": none does
  USED    how much is in it
  SIZE    how much it may hold
  SNAPS   how many snapshots there are of it ('monopod volume snapshot ls')
  HELD    what holds the size: project, qgroup or image; none: it can fill the disk
  CLASS   the storage class
  STATE   ready; creating; removing; missing (it is not on the disk); stray (no PersistentVolume is for it: it
          stays); unreadable (its record is: it stays)
  WHERE   its directory on the host

Exit codes: 0 if the list was printed; 1 if no node runs, or it makes no volumes; 2 for an invalid command line.`,
		Example: `  monopod volume ls
  monopod volume ls -o json | jq -r '.volumes[] | select(.heldBy == "none") | .namespace + "/" + .claim'`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.WithNode(*socket, func(c *client.Client) error {
				told, err := c.Volumes(cmd.Context())
				if err != nil {
					return err
				}
				return printVolumes(cmd.OutOrStdout(), cmd.ErrOrStderr(), format, told)
			})
		},
	}
	cli.FormatFlag(cmd, &format, cli.AsTable, cli.AsJSON, cli.AsYAML)
	return cmd
}

func printVolumes(out, problems io.Writer, format string, told protocol.Volumes) error {
	if format == cli.AsJSON || format == cli.AsYAML {
		return cli.PrintValue(out, format, told)
	}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "CLAIM\tPOD\tUSED\tSIZE\tSNAPS\tHELD\tCLASS\tSTATE\tWHERE")
	for _, v := range told.Volumes {
		claim, pod, used := v.Namespace+"/"+v.Claim, "-", "-"
		if v.Claim == "" {
			claim = "-"
		}
		if len(v.Pods) > 0 {
			pod = v.Pods[0]
		}
		if more := len(v.Pods) - 1; more > 0 {
			pod += fmt.Sprintf(" +%d", more)
		}
		if v.Used != nil {
			used = binarysize.Text(*v.Used)
		}
		fmt.Fprintln(tw, strings.Join([]string{claim, pod, used, binarysize.Text(v.Size), strconv.Itoa(len(v.Snapshots)), v.HeldBy, v.Class, v.State, v.Path}, "\t"))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, v := range told.Volumes {
		if v.Problem != "" {
			fmt.Fprintln(problems, "problem:", oneline.Of(v.Path+": "+v.Problem))
		}
	}
	for _, u := range told.NotAsked {
		fmt.Fprintln(problems, "not known:", oneline.Of(u.What+": "+u.Why))
	}
	return nil
}
