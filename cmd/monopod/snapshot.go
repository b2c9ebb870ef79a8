package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/node"
)

func newSnapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Save the API's objects and keys to a file, and restore them",
		Long: `A snapshot is one file with all objects of the API at one moment, and the keys and certificates of the API server. It is a secret:
who has it can do everything on the node. Images, and what pods have written, are not in it.`,
	}
	cmd.AddCommand(newSnapshotSaveCommand(), newSnapshotRestoreCommand())
	return cmd
}

func newSnapshotSaveCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "save FILE",
		Short: "Save a running API server",
		Long: `Saves the objects, keys and certificates of the API server that runs with the run and data directories to FILE, while it works. All
objects are of one moment. FILE gets its name, and mode 0600, when all of it is on the disk and has been read back; a FILE that is there is
replaced then.

FILE is a tar. Its etcd.db is what 'etcdctl snapshot save' writes, manifest.json says what is in it.`,
		Example: `  monopod snapshot save /backup/node.tar
  monopod snapshot save -o json "/backup/$(date +%F).tar" | jq -r .revision`,
		Args: oneFile,
	}
	cfg := addConfiguration(cmd, config.All)
	showOnly(cmd, "config", "data-dir", "run-dir")
	formatFlag(cmd, &output, asTable, asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := cfg.load()
		if err != nil {
			return err
		}
		tell, done := stepProgress(os.Stderr)
		m, err := node.SnapshotSave(cmd.Context(), options(c, false), args[0], tell)
		done()
		if err != nil {
			return err
		}
		if output == asJSON {
			return printJSON(cmd.OutOrStdout(), m)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "saved the objects of %s at revision %d, and %s, to %s (%s)\n", m.Node, m.Revision, count(len(m.Files)-1, "file"), args[0], sizeOf(args[0]))
		return err
	}
	return cmd
}

func newSnapshotRestoreCommand() *cobra.Command {
	var output string
	var force bool
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make the data of a stopped API server of a snapshot",
		Long: `Makes the objects, keys and certificates of a snapshot those of the node with the data directory, which is stopped. It works on another
machine, too.

Data that is there is an error; with --force it is moved aside, within the data directory, and can be removed later. All is checked before
anything is changed. Whenever the process or the machine ends, either nothing is restored or everything: the next start finishes it.

resourceVersions go on after those that clients have seen, by a wide margin. Watches of the time before get 410 Gone, upon which clients
list anew. Pods that run and are not in the snapshot are stopped when the node starts.`,
		Example: `  monopod snapshot restore /backup/node.tar
  monopod snapshot restore --force --data-dir /srv/monopod /backup/node.tar`,
		Args: oneFile,
	}
	cfg := addConfiguration(cmd, config.All)
	showOnly(cmd, "config", "data-dir", "run-dir")
	formatFlag(cmd, &output, asTable, asJSON)
	cmd.Flags().BoolVar(&force, "force", false, "move data that is there aside")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := cfg.load()
		if err != nil {
			return err
		}
		tell, done := stepProgress(os.Stderr)
		r, err := node.SnapshotRestore(cmd.Context(), options(c, false), args[0], force, tell)
		done()
		if err != nil {
			return err
		}
		if output == asJSON {
			return printJSON(cmd.OutOrStdout(), r)
		}
		out := cmd.OutOrStdout()
		if _, err := fmt.Fprintf(out, "restored the objects of %s of %s to %s\n", r.Manifest.Node, r.Manifest.Time.Format(time.RFC3339), c.DataDir); err != nil || r.Aside == "" {
			return err
		}
		_, err = fmt.Fprintf(out, "what was there before is in %s\n", r.Aside)
		return err
	}
	return cmd
}

func oneFile(cmd *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return &usageError{errors.New("name one FILE; see '" + cmd.CommandPath() + " --help'")}
	}
	return nil
}

func sizeOf(path string) string {
	info, err := os.Stat(filepath.Clean(path))
	if err != nil {
		return "?"
	}
	return humanSize(uint64(max(0, info.Size())))
}

// stepProgress draws a line for a step that takes a while, if somebody looks. done ends the line.
func stepProgress(to *os.File) (tell func(step string, done, total int64), end func()) {
	if !isTerminal(to) {
		return nil, func() {}
	}
	var told time.Time
	return func(step string, done, total int64) {
			if time.Since(told) < 100*time.Millisecond {
				return
			}
			told = time.Now()
			fmt.Fprintf(to, "\r%s %s of %s\x1b[K", step, humanSize(uint64(max(0, done))), humanSize(uint64(max(0, total))))
		}, func() {
			if !told.IsZero() {
				_, _ = io.WriteString(to, "\r\x1b[K")
			}
		}
}
