package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/admin/client"
	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/kit/binarysize"
	"monopod.dev/monopod/internal/kit/oneline"
)

// copyFlags are those of a command that makes a claim.
type copyFlags struct {
	claimFlags
	class, size, format string
}

func (f *copyFlags) add(cmd *cobra.Command) {
	f.claimFlags.add(cmd)
	cmd.Flags().StringVar(&f.class, "class", "", "storage class `CLASS` of the new claim (default: that of the old one)")
	cmd.Flags().StringVar(&f.size, "size", "", "`SIZE` that the new claim requests, such as 20Gi; at least that of the old one, which is the default")
	cli.FormatFlag(cmd, &f.format, cli.AsTable, cli.AsJSON, cli.AsYAML)
}

// request is what is asked for; arg may be empty.
func (f *copyFlags) request(cmd *cobra.Command, arg string) (req protocol.CopyRequest, err error) {
	req.Class, req.Size = f.class, f.size
	if f.size != "" {
		if q, err := resource.ParseQuantity(f.size); err != nil || q.Sign() <= 0 {
			return req, &cli.UsageError{Err: fmt.Errorf("--size is %q: use a quantity such as 20Gi", f.size)}
		}
	}
	if arg == "" && cmd.Flags().Changed("namespace") {
		return req, &cli.UsageError{Err: errors.New("-n needs the new claim's name: add CLAIM")}
	}
	if arg != "" {
		req.Claim, err = f.claim(cmd, arg)
	}
	return req, err
}

func (f *copyFlags) told(cmd *cobra.Command, made protocol.Copied, did string) error {
	tellLeftOut(cmd.ErrOrStderr(), made.LeftOut)
	if f.format != cli.AsTable {
		return cli.PrintValue(cmd.OutOrStdout(), f.format, made)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s the claim %s/%s, %s of the class %s (volume %s)\n", did, made.Namespace, made.Claim.Claim, binarysize.Text(made.Size), made.Class, made.Volume)
	return err
}

func tellLeftOut(problems io.Writer, l protocol.LeftOut) {
	for _, what := range l.LeftOut {
		fmt.Fprintln(problems, "left out:", oneline.Of(what))
	}
	if l.More > 0 {
		fmt.Fprintf(problems, "left out: %s more\n", cli.Count(l.More, "thing"))
	}
}

func newVolumeRestoreCommand(socket *string) *cobra.Command {
	var flags copyFlags
	cmd := &cobra.Command{
		Use:   "restore SNAPSHOT [NAMESPACE/]CLAIM",
		Short: "Make a new claim with what is in a snapshot",
		Long: `Makes a new claim, in any namespace, whose volume has what is in a snapshot. The snapshot stays, and so does the claim
that it was taken of. There must be no claim of the name yet: to have the old state under the old name, delete that
claim first, or rename what uses it.

The claim has the access modes of the old one. It is bound at once, and pods can use it when the command returns. On
btrfs the copy is there at once and takes no room until it is written to; elsewhere its files are copied.

If the command fails, or the node is killed meanwhile, nothing is left of the new claim and its volume.

Exit codes: 0 if the claim is there; 1 if it is not; 2 for an invalid command line.`,
		Example: `  monopod volume restore before-upgrade shop/data-old
  monopod volume restore before-upgrade data -n test --size 20Gi`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return &cli.UsageError{Err: fmt.Errorf("%d arguments: name a snapshot and the new claim; see '%s --help'", len(args), cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := flags.request(cmd, args[1])
			if err != nil {
				return err
			}
			return cli.WithNode(*socket, func(c *client.Client) error {
				made, err := c.Restore(cmd.Context(), args[0], req)
				if err != nil {
					return err
				}
				return flags.told(cmd, made, "restored "+args[0]+" to")
			})
		},
	}
	flags.add(cmd)
	cli.CompleteNames(cmd, false, snapshotNames(socket))
	return cmd
}

func newVolumeExportCommand(socket *string) *cobra.Command {
	var flags claimFlags
	var req protocol.ExportRequest
	var output string
	cmd := &cobra.Command{
		Use:   "export [NAMESPACE/]CLAIM [-o FILE]",
		Short: "Write all that a claim has to a file",
		Long: `Writes an archive of a claim's volume, or of a snapshot: a tar with numeric owners, modes, times, extended attributes
(ACLs and file capabilities too), hard links and sparse files. 'monopod volume import' makes a claim of it, on this or
another machine; any tar unpacks it: the files are in data/, and monopod-volume.json says whose they are. Of a claim
with volumeMode Block it has the device's content, in the file device. It is not compressed: pipe it through zstd.

A volume that is a btrfs subvolume, or an image on btrfs or xfs, is exported as it is at one moment, while pods write
to it, by way of a snapshot that is removed afterwards. Of others the files are read one by one: that is refused while
pods use the claim, unless --in-use is given, and fails if one begins to meanwhile.

Sockets are left out. So are device files and subvolumes within the volume, and attributes that a tar cannot have,
which is told.

Without -o the archive goes to standard output, unless that is a terminal. A FILE appears only when it is complete.

Exit codes: 0 if the archive is whole; 1 if it is not; 2 for an invalid command line.`,
		Example: `  monopod volume export shop/data -o /backup/data.tar
  monopod volume export shop/data | zstd > data.tar.zst
  monopod volume export --snapshot before-upgrade -o old.tar
  monopod volume export shop/data | ssh other monopod volume import -`,
		Args: func(cmd *cobra.Command, args []string) error {
			if snapshot := cmd.Flags().Changed("snapshot"); snapshot && len(args) > 0 {
				return &cli.UsageError{Err: errors.New("--snapshot names what is exported: leave CLAIM out")}
			} else if snapshot {
				return nil
			}
			return oneArgument("claim")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) > 0 {
				if req.Claim, err = flags.claim(cmd, args[0]); err != nil {
					return err
				}
			}
			if (output == "" || output == "-") && cli.IsTerminal(os.Stdout) {
				return &cli.UsageError{Err: errors.New("standard output is a terminal: name a file with -o FILE, or pipe it, as in: monopod volume export data | zstd > data.tar.zst")}
			}
			return cli.WithNode(*socket, func(c *client.Client) error {
				tell, end := byteProgress(os.Stderr, "written")
				write := func(w io.Writer) error {
					done, err := c.Export(cmd.Context(), req, &counted{w: w, tell: tell})
					end()
					tellLeftOut(cmd.ErrOrStderr(), done.LeftOut)
					return err
				}
				if output == "" || output == "-" {
					return write(cmd.OutOrStdout())
				}
				return cli.WriteWhole(output, write)
			})
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&req.Snapshot, "snapshot", "", "export the snapshot `NAME` instead of a claim")
	cmd.Flags().StringVarP(&output, "output", "o", "", "write the archive to `FILE`")
	inUseFlag(cmd, &req.InUse)
	cli.CompleteNames(cmd, false, claimNames(socket))
	return cmd
}

func newVolumeImportCommand(socket *string) *cobra.Command {
	var flags copyFlags
	cmd := &cobra.Command{
		Use:   "import FILE [[NAMESPACE/]CLAIM]",
		Short: "Make a new claim with what is in an exported file",
		Long: `Makes a new claim whose volume has what is in an archive that 'monopod volume export' has written, here or on another
machine. FILE may be -: standard input. Without CLAIM it has the namespace and the name that it had. There must be no
claim of the name yet, and the namespace must be there.

The archive may be anybody's: nothing of it comes to lie outside of the new volume. An archive that has device files,
that needs more room than the claim has, or that is cut short is refused. Owners, modes and capabilities of files are
as the archive says.

If the command fails, or the node is killed meanwhile, nothing is left of the new claim and its volume.

Exit codes: 0 if the claim is there; 1 if it is not; 2 for an invalid command line.`,
		Example: `  monopod volume import /backup/data.tar
  monopod volume import /backup/data.tar test/data --class held
  zstd -d < data.tar.zst | monopod volume import - shop/data`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 || args[0] == "" {
				return &cli.UsageError{Err: fmt.Errorf("%d arguments: name a FILE, and the new claim if it is to have another name; see '%s --help'", len(args), cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			claim := ""
			if len(args) > 1 {
				claim = args[1]
			}
			req, err := flags.request(cmd, claim)
			if err != nil {
				return err
			}
			in := cmd.InOrStdin()
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer f.Close()
				in = f
			} else if in == io.Reader(os.Stdin) && cli.IsTerminal(os.Stdin) {
				return &cli.UsageError{Err: errors.New("standard input is a terminal: name the archive's FILE, or pipe it in, as in: zstd -d < data.tar.zst | monopod volume import -")}
			}
			return cli.WithNode(*socket, func(c *client.Client) error {
				tell, end := byteProgress(os.Stderr, "read")
				made, err := c.Import(cmd.Context(), req, io.TeeReader(in, &counted{w: io.Discard, tell: tell}))
				end()
				if err != nil {
					return err
				}
				return flags.told(cmd, made, "imported")
			})
		},
	}
	flags.add(cmd)
	return cmd
}

// counted tells how much was written.
type counted struct {
	w    io.Writer
	n    int64
	tell func(n int64)
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	if c.tell != nil {
		c.tell(c.n)
	}
	return n, err
}

// byteProgress shows how many bytes are done, on a terminal; tell is nil where there is none. Nothing of it stays after end.
func byteProgress(to *os.File, did string) (tell func(n int64), end func()) {
	if !cli.IsTerminal(to) {
		return nil, func() {}
	}
	var mu sync.Mutex // who sends may do so for a moment after the answer
	var told time.Time
	ended := false
	return func(n int64) {
			mu.Lock()
			defer mu.Unlock()
			if ended || time.Since(told) < 100*time.Millisecond {
				return
			}
			told = time.Now()
			fmt.Fprintf(to, "\r%s %s\x1b[K", did, binarysize.Text(n))
		}, func() {
			mu.Lock()
			defer mu.Unlock()
			if ended = true; !told.IsZero() {
				_, _ = io.WriteString(to, "\r\x1b[K")
			}
		}
}
