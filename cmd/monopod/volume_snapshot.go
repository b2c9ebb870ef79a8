package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/admin/client"
	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/kit/binarysize"
	"monopod.dev/monopod/internal/kit/oneline"
)

// claimFlags are those of a command that works with one claim.
type claimFlags struct{ namespace string }

func (f *claimFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", metav1.NamespaceDefault, "the claim's `NAMESPACE`")
}

// claim is the claim that an argument names.
func (f *claimFlags) claim(cmd *cobra.Command, arg string) (c protocol.Claim, err error) {
	chosen := f.namespace
	if !cmd.Flags().Changed("namespace") {
		chosen = ""
	}
	c.Namespace, c.Claim, err = objectArgument(arg, chosen, "claim", "pvc", "persistentvolumeclaim", "persistentvolumeclaims")
	return c, err
}

// inUseFlag is for what can be copied file by file only.
func inUseFlag(cmd *cobra.Command, inUse *bool) {
	cmd.Flags().BoolVar(inUse, "in-use", false, "copy file by file although pods use the claim, where it cannot be copied at one moment")
}

func newVolumeSnapshotCommand(socket *string) *cobra.Command {
	var flags claimFlags
	var req protocol.SnapshotRequest
	var format string
	cmd := &cobra.Command{
		Use:   "snapshot [NAMESPACE/]CLAIM",
		Short: "Take a snapshot of a claim's volume; list and remove snapshots",
		Long: `Takes a snapshot: what the claim's volume has now stays as it is, by a name, on the same disk. It needs a file
system that can share blocks (btrfs, xfs); elsewhere use 'monopod volume export'.

  held by   how it is taken                                                     while pods write
  qgroup    a snapshot of the btrfs subvolume                                    at one moment
  image     the image's blocks are shared; writes wait meanwhile, 5s at most     at one moment
  other     each file's blocks are shared, one file after the other              refused without --in-use

'At one moment' is what a loss of power would leave: databases start from it as after a crash. With --in-use each
file is of another moment, which few databases can use: end the pods first, or have the database write a backup.

A snapshot takes no room at first, and then as much as the claim changes. It counts for no claim's size. It stays
when the claim, or the whole node, goes ('monopod reset' leaves it too, unless --volumes is given) and is removed by
'monopod volume snapshot rm' only. It is no backup: it is lost with the disk. 'monopod volume restore' makes a new
claim of it, 'monopod volume export --snapshot' a file.

After a snapshot of an image, what the claim overwrites takes new room. The snapshot is refused if the disk has not
enough for all of it; 'monopod status' tells when it has no longer.

A claim called ls or rm is named with its namespace.

Exit codes: 0 if the snapshot was taken; 1 if it was not, and nothing of it is left; 2 for an invalid command line.`,
		Example: `  monopod volume snapshot data
  monopod volume snapshot shop/data --name before-upgrade
  name=$(monopod volume snapshot shop/data -o json | jq -r .name)`,
		Args: oneArgument("claim"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if req.Claim, err = flags.claim(cmd, args[0]); err != nil {
				return err
			}
			return cli.WithNode(*socket, func(c *client.Client) error {
				s, err := c.Snapshot(cmd.Context(), req)
				if err != nil {
					return err
				}
				if format != cli.AsTable {
					return cli.PrintValue(cmd.OutOrStdout(), format, s)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "took the snapshot %s of %s/%s\n", s.Name, s.Namespace, s.Claim)
				return err
			})
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&req.Name, "name", "", "call the snapshot `NAME` (default: the claim's name, the date and the time)")
	inUseFlag(cmd, &req.InUse)
	cli.FormatFlag(cmd, &format, cli.AsTable, cli.AsJSON, cli.AsYAML)
	cli.CompleteNames(cmd, false, claimNames(socket))
	cmd.AddCommand(newSnapshotListCommand(socket), newSnapshotRemoveCommand(socket))
	return cmd
}

// oneArgument wants one argument.
func oneArgument(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return &cli.UsageError{Err: fmt.Errorf("%d arguments: name one %s; see '%s --help'", len(args), what, cmd.CommandPath())}
		}
		return nil
	}
}

// claimNames are the claims that a node has made volumes for.
func claimNames(socket *string) func(context.Context) ([]string, error) {
	return func(ctx context.Context) (names []string, err error) {
		err = cli.WithNode(*socket, func(c *client.Client) error {
			told, err := c.Volumes(ctx)
			for _, v := range told.Volumes {
				if v.Claim != "" {
					names = append(names, v.Namespace+"/"+v.Claim)
				}
			}
			return err
		})
		return names, err
	}
}

// snapshotNames are the snapshots that a node has.
func snapshotNames(socket *string) func(context.Context) ([]string, error) {
	return func(ctx context.Context) (names []string, err error) {
		err = cli.WithNode(*socket, func(c *client.Client) error {
			told, err := c.Snapshots(ctx)
			for _, s := range told.Snapshots {
				names = append(names, s.Name)
			}
			return err
		})
		return names, err
	}
}

func newSnapshotListCommand(socket *string) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the snapshots of claims' volumes",
		Long: `Lists the snapshots of volumes. Each line is one:

  CLAIM   the claim whose volume it is of, which may be gone
  SIZE    how much the volume could hold
  USED    how much is in it
  OWN     how much of that nobody else has: what is free when it is removed. Two snapshots may share more
  MOMENT  one: all of it is of one moment; files: it was copied file by file
  STATE   ready; taking; unreadable (its record is, or it is another node's: it stays)

"-": that is not known; standard error says why.

Exit codes: 0 if the list was printed; 1 if no node runs, or it makes no volumes; 2 for an invalid command line.`,
		Example: `  monopod volume snapshot ls
  monopod volume snapshot ls -o json | jq -r '.snapshots[] | select(.namespace == "shop") | .name'`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.WithNode(*socket, func(c *client.Client) error {
				told, err := c.Snapshots(cmd.Context())
				if err != nil {
					return err
				}
				return printSnapshots(cmd.OutOrStdout(), cmd.ErrOrStderr(), format, told, time.Now())
			})
		},
	}
	cli.FormatFlag(cmd, &format, cli.AsTable, cli.AsJSON, cli.AsYAML)
	return cmd
}

func printSnapshots(out, problems io.Writer, format string, told protocol.Snapshots, now time.Time) error {
	if format == cli.AsJSON || format == cli.AsYAML {
		return cli.PrintValue(out, format, told)
	}
	bytes := func(n *int64) string {
		if n == nil {
			return "-"
		}
		return binarysize.Text(*n)
	}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "NAME\tCLAIM\tAGE\tSIZE\tUSED\tOWN\tMOMENT\tSTATE")
	for _, s := range told.Snapshots {
		claim, age, moment := "-", "-", "-"
		if s.Claim != "" {
			claim, moment = s.Namespace+"/"+s.Claim, map[bool]string{true: "one", false: "files"}[s.AtOnce]
		}
		if s.Taken != nil {
			age = duration.HumanDuration(now.Sub(*s.Taken))
		}
		fmt.Fprintln(tw, strings.Join([]string{s.Name, claim, age, binarysize.Text(s.Size), bytes(s.Used), bytes(s.Own), moment, s.State}, "\t"))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, s := range told.Snapshots {
		if s.Problem != "" {
			fmt.Fprintln(problems, "problem:", oneline.Of(s.Name+": "+s.Problem))
		}
	}
	return nil
}

func newSnapshotRemoveCommand(socket *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rm SNAPSHOT...",
		Aliases: []string{"remove"},
		Short:   "Remove snapshots of claims' volumes",
		Long: `Removes snapshots by their names. No claim is changed by that, nor are claims that were restored from them. If some
of the snapshots cannot be removed, the others are. The space is free shortly afterwards.

Exit codes: 0 if all are removed; 1 if some are not: there is none of the name, or it is being restored or exported;
2 for an invalid command line.`,
		Example: `  monopod volume snapshot rm before-upgrade
  monopod volume snapshot ls -o json | jq -r '.snapshots[] | select(.claim == "data") | .name' | xargs -r monopod volume snapshot rm`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &cli.UsageError{Err: fmt.Errorf("name a snapshot; see '%s --help'", cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return cli.WithNode(*socket, func(c *client.Client) error {
				var errs []error
				for _, name := range args {
					if err := c.RemoveSnapshot(cmd.Context(), name); err != nil {
						errs = append(errs, err)
						continue
					}
					if _, err := fmt.Fprintln(cmd.OutOrStdout(), "removed", name); err != nil {
						return err
					}
				}
				return errors.Join(errs...)
			})
		},
	}
	cli.CompleteNames(cmd, true, snapshotNames(socket))
	return cmd
}
