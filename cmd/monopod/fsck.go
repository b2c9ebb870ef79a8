package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/fsck"
	"monopod.dev/monopod/internal/kit/oneline"
	"monopod.dev/monopod/internal/node"
)

func newFsckCommand() *cobra.Command {
	var output string
	var how node.FsckOptions
	cmd := &cobra.Command{
		Use:   "fsck",
		Short: "Check, and repair, the data directory of a stopped node",
		Long: `Checks the data directory of a stopped node for damage, and can repair it. It checks that

- every page of the databases can be read;
- every image has its manifest, configuration and layers, and layers have the right parents;
- blobs have the digest and the size that their names say;
- containers have their images, writable layers and sandboxes, and addresses have their sandboxes;
- nothing is there without an owner.

It does not check the objects of the API: etcd checks its own store, and 'monopod snapshot' saves it.

Stop the node first; its pods may keep running. Without --repair nothing is changed. The command accepts all
settings of 'monopod up'; this help lists only those that matter to it.

A fault is either damage (something is missing or wrong), or a leftover of a node that was killed (it takes
space, and the next start of the node would remove it too).

  --deep     reads all files of all layers, rebuilds each layer's tar and compares its digest. This finds files
             that were changed, removed or added. In layers without a record of their tar, files are only
             counted. It takes as long as reading all images once.
  --repair   removes the names of damaged images, so that they are pulled again, and removes leftovers. Nothing
             intact is lost: everything that a container uses stays, and an unreadable database is left
             unchanged. Then everything is checked again, and the remaining faults are shown.

Exit codes: 0 if nothing is wrong (any more, with --repair); 1 if something is wrong or the check failed; 2 for
an invalid command line or configuration.`,
		Example: `  monopod fsck
  monopod fsck --deep --data-dir /srv/monopod
  monopod fsck --repair
  monopod fsck -o json | jq -r '.findings[] | select(.severity == "damaged") | .object'`,
		Args: cli.NoArgs,
	}
	cfg := cli.AddConfiguration(cmd, config.All)
	cli.ShowOnly(cmd, "config", "data-dir", "run-dir")
	cli.FormatFlag(cmd, &output, cli.AsTable, cli.AsJSON)
	cmd.Flags().BoolVar(&how.Deep, "deep", false, "read every file of every layer")
	cmd.Flags().BoolVar(&how.Repair, "repair", false, "repair what can be repaired")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := cfg.Load()
		if err != nil {
			return err
		}
		report, err := node.Fsck(cmd.Context(), options(c, false), how)
		if err != nil && len(report.Findings) == 0 {
			return err
		}
		write := printFsck
		if output == cli.AsJSON {
			write = func(w io.Writer, r node.FsckReport) error { return cli.PrintJSON(w, r) }
		}
		if werr := write(os.Stdout, report); werr != nil {
			return werr
		}
		if err != nil {
			return err
		}
		return fsckVerdict(report)
	}
	return cmd
}

// fsckVerdict is the error that says what is wrong, or nil.
func fsckVerdict(r node.FsckReport) error {
	switch {
	case r.Repaired && len(r.Remaining) > 0:
		return fmt.Errorf("%s of %d could not be repaired", cli.Count(len(r.Remaining), "finding"), len(r.Findings))
	case !r.Repaired && len(r.Findings) > 0:
		repairable := 0
		for _, f := range r.Findings {
			if f.Repairable {
				repairable++
			}
		}
		if repairable == 0 {
			return fmt.Errorf("%s; --repair can repair none of them", cli.Count(len(r.Findings), "finding"))
		}
		return fmt.Errorf("%s; --repair repairs %d of them", cli.Count(len(r.Findings), "finding"), repairable)
	}
	return nil
}

func printFsck(w io.Writer, r node.FsckReport) error {
	if err := printFindings(w, r.Findings); err != nil {
		return err
	}
	if r.Repaired && len(r.Remaining) > 0 {
		if _, err := fmt.Fprintln(w, "\nAfter the repair:"); err != nil {
			return err
		}
		if err := printFindings(w, r.Remaining); err != nil {
			return err
		}
	}
	how := "looked at"
	if r.Deep {
		how = "read"
	}
	verdict := "nothing is wrong"
	switch {
	case r.Repaired && len(r.Remaining) == 0:
		verdict = "all was repaired"
	case r.Repaired:
		verdict = cli.Count(len(r.Remaining), "finding") + " remain"
	case len(r.Findings) > 0:
		verdict = cli.Count(len(r.Findings), "finding")
	}
	_, err := fmt.Fprintf(w, "%s, %s, %s, %s %s: %s\n", cli.Count(r.Images, "image"), cli.Count(r.Layers, "layer"), cli.Count(r.Containers, "container"), cli.Plural(r.Sandboxes, "sandbox", "sandboxes"), how, verdict)
	return err
}

// printFindings writes three lines for each: what it is, what is wrong with it, and what a repair does.
func printFindings(w io.Writer, findings []fsck.Finding) error {
	if len(findings) == 0 {
		return nil
	}
	const row, below = "%-9s%-11s%s\n", "                    %s\n"
	var out strings.Builder
	fmt.Fprintf(&out, row, "STATE", "KIND", "OBJECT, PROBLEM, REPAIR")
	for _, f := range findings {
		fmt.Fprintf(&out, row, f.Severity, f.Kind, oneline.Of(f.Object))
		fmt.Fprintf(&out, below, oneline.Of(f.Problem))
		fmt.Fprintf(&out, below, "-> "+oneline.Of(f.Repair))
	}
	_, err := io.WriteString(w, out.String())
	return err
}
