package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/node"
)

func newSnapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Save the API's objects and keys to a file, and restore them",
		Long: `A snapshot is one file with all objects of the API at one moment, and the keys and certificates of the API
server. It is a secret: anyone who has it can do everything on the node. It contains no images, and nothing
that pods have written.`,
	}
	cmd.AddCommand(newSnapshotSaveCommand(), newSnapshotRestoreCommand())
	return cmd
}

func newSnapshotSaveCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "save FILE",
		Short: "Save the data of a running API server",
		Long: `Saves the objects, keys and certificates of the API server to FILE, while the server runs. It finds the server
by the run and data directories. All objects are of one moment. FILE gets its name, and mode 0600, only when it
is completely on the disk and has been read back; then it replaces a FILE that exists.

FILE is a tar. Its etcd.db is the file that 'etcdctl snapshot save' writes; manifest.json lists the contents.`,
		Example: `  monopod snapshot save /backup/node.tar
  monopod snapshot save -o json "/backup/$(date +%F).tar" | jq -r .revision`,
		Args: oneFile,
	}
	cfg := cli.AddConfiguration(cmd, config.All)
	cli.ShowOnly(cmd, "config", "data-dir", "run-dir")
	cli.FormatFlag(cmd, &output, cli.AsTable, cli.AsJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := cfg.Load()
		if err != nil {
			return err
		}
		tell, done := stepProgress(os.Stderr)
		m, err := node.SnapshotSave(cmd.Context(), options(c, false), args[0], tell)
		done()
		if err != nil {
			return err
		}
		if output == cli.AsJSON {
			return cli.PrintJSON(cmd.OutOrStdout(), m)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "saved the objects of %s at revision %d, and %s, to %s (%s)\n", m.Node, m.Revision, cli.Count(len(m.Files)-1, "file"), args[0], sizeOf(args[0]))
		return err
	}
	return cmd
}

func newSnapshotRestoreCommand() *cobra.Command {
	var output string
	var force bool
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore the data of a stopped API server from a snapshot",
		Long: `Gives the stopped node with the data directory the objects, keys and certificates of a snapshot. This works on
another machine, too.

If there is data already, the command fails. With --force it moves that data aside, within the data directory;
you can remove it later. Everything is checked before anything is changed. Even if the process or the machine
fails meanwhile, either everything is restored or nothing: the next start finishes the work.

resourceVersions continue far above all that clients have seen. Watches from before the restore get 410 Gone,
so clients list again. Running pods that are not in the snapshot are stopped when the node starts.`,
		Example: `  monopod snapshot restore /backup/node.tar
  monopod snapshot restore --force --data-dir /srv/monopod /backup/node.tar`,
		Args: oneFile,
	}
	cfg := cli.AddConfiguration(cmd, config.All)
	cli.ShowOnly(cmd, "config", "data-dir", "run-dir")
	cli.FormatFlag(cmd, &output, cli.AsTable, cli.AsJSON)
	cmd.Flags().BoolVar(&force, "force", false, "move existing data aside")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := cfg.Load()
		if err != nil {
			return err
		}
		tell, done := stepProgress(os.Stderr)
		r, err := node.SnapshotRestore(cmd.Context(), options(c, false), args[0], force, tell)
		done()
		if err != nil {
			return err
		}
		if output == cli.AsJSON {
			return cli.PrintJSON(cmd.OutOrStdout(), r)
		}
		out := cmd.OutOrStdout()
		if _, err := fmt.Fprintf(out, "restored the objects of %s of %s to %s\n", r.Manifest.Node, r.Manifest.Time.Format(time.RFC3339), c.DataDir); err != nil || r.Aside == "" {
			return err
		}
		_, err = fmt.Fprintf(out, "the data from before is in %s\n", r.Aside)
		return err
	}
	return cmd
}

func oneFile(cmd *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return &cli.UsageError{Err: errors.New("name one FILE; see '" + cmd.CommandPath() + " --help'")}
	}
	return nil
}

func sizeOf(path string) string {
	info, err := os.Stat(filepath.Clean(path))
	if err != nil {
		return "?"
	}
	return cli.HumanSize(uint64(max(0, info.Size())))
}

// stepProgress draws a line for a step that takes a while, if somebody looks. done ends the line.
func stepProgress(to *os.File) (tell func(step string, done, total int64), end func()) {
	if !cli.IsTerminal(to) {
		return nil, func() {}
	}
	var told time.Time
	return func(step string, done, total int64) {
			if time.Since(told) < 100*time.Millisecond {
				return
			}
			told = time.Now()
			fmt.Fprintf(to, "\r%s %s of %s\x1b[K", step, cli.HumanSize(uint64(max(0, done))), cli.HumanSize(uint64(max(0, total))))
		}, func() {
			if !told.IsZero() {
				_, _ = io.WriteString(to, "\r\x1b[K")
			}
		}
}
