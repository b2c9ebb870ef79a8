package image

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/runtime/imageservice"
)

func newListCommand(socket *string) *cobra.Command {
	var output string
	var quiet, digests, whole bool
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the images",
		Long: `Lists the images by name, one line for each name. The size is the space that the image takes on disk, unpacked,
including layers that it shares with others; USED BY is the number of containers that use it.`,
		Example: `  monopod image ls
  monopod image ls -q | xargs -r monopod image inspect
  monopod image ls -o json`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withImages(*socket, func(c imageservice.Client) error {
				all, err := c.List(cmd.Context())
				switch {
				case err != nil:
					return err
				case output == cli.AsJSON:
					return cli.PrintJSON(os.Stdout, all)
				case quiet:
					for _, img := range all {
						fmt.Println(img.ID)
					}
					return nil
				}
				return printImages(os.Stdout, all, digests, whole, time.Now())
			})
		},
	}
	cli.FormatFlag(cmd, &output, cli.AsTable, cli.AsJSON)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only the ids")
	cmd.Flags().BoolVar(&digests, "digests", false, "show names that are digests, too")
	cmd.Flags().BoolVar(&whole, "no-trunc", false, "do not shorten ids")
	return cmd
}

func printImages(w io.Writer, all []imageservice.Image, digests, whole bool, now time.Time) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "NAME\tID\tCREATED\tSIZE\tUSED BY")
	type row struct{ name, rest string }
	var rows []row
	for _, img := range all {
		names := append([]string{}, img.Tags...)
		if digests {
			names = append(names, img.Digests...)
		}
		if len(names) == 0 {
			names = []string{"<none>"}
		}
		for _, name := range names {
			rows = append(rows, row{name, fmt.Sprintf("%s\t%s\t%s\t%d", shortID(img.ID, whole), cli.HumanAge(img.Created, now), cli.HumanSize(img.Size), len(img.Users))})
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.name, b.name) })
	for _, r := range rows {
		fmt.Fprintf(tw, "%s\t%s\n", r.name, r.rest)
	}
	return tw.Flush()
}

func shortID(id string, whole bool) string {
	if whole {
		return id
	}
	id = strings.TrimPrefix(id, "sha256:")
	return id[:min(13, len(id))]
}

func newInspectCommand(socket *string) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "inspect IMAGE...",
		Short: "Show everything that is known about images",
		Long: `Shows the id, names, size, platform, layers and configuration of images, and the containers that use them, as a
JSON list with one object for each image.

digest and packedSize of a layer are those of the registry's (compressed) layer; diffID is the digest of its
tar; chainID identifies it together with the layers below it; size is the space that it takes on disk. recorded
is true if 'monopod image save' can write the layer.`,
		Example: `  monopod image inspect busybox
  monopod image inspect busybox | jq -r '.[0].config.config.Env[]'
  monopod image inspect -o table busybox`,
		Args: someImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withImages(*socket, func(c imageservice.Client) error {
				all := []imageservice.Details{}
				for _, ref := range args {
					d, err := c.Inspect(cmd.Context(), imageservice.InspectRequest{Image: ref})
					if err != nil {
						return err
					}
					all = append(all, d)
				}
				if output == cli.AsJSON {
					return cli.PrintJSON(os.Stdout, all)
				}
				for i, d := range all {
					if i > 0 {
						fmt.Println()
					}
					if err := printDetails(os.Stdout, d); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	cli.FormatFlag(cmd, &output, cli.AsJSON, cli.AsTable)
	cli.CompleteNames(cmd, true, imageNames(socket))
	return cmd
}

func printDetails(w io.Writer, d imageservice.Details) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(key string, values ...string) {
		for i, v := range values {
			if i > 0 {
				key = ""
			}
			fmt.Fprintf(tw, "%s\t%s\n", key, v)
		}
	}
	row("ID", d.ID)
	row("Tags", d.Tags...)
	row("Digests", d.Digests...)
	row("Manifest", d.Manifest)
	row("Platform", d.Platform)
	if !d.Created.IsZero() {
		row("Created", d.Created.Format(time.RFC3339))
	}
	row("Size", fmt.Sprintf("%s (%d bytes)", cli.HumanSize(d.Size), d.Size))
	row("Pinned", fmt.Sprint(d.Pinned))
	for i, u := range d.Users {
		key := "Used by"
		if i > 0 {
			key = ""
		}
		row(key, fmt.Sprintf("%s/%s/%s %s (%s)", u.Namespace, u.Pod, u.Name, shortID(u.Container, false), u.State))
	}
	for i, l := range d.Layers {
		saved := ""
		if !l.Recorded {
			saved = ", cannot be saved"
		}
		row(fmt.Sprintf("Layer %d", i+1), fmt.Sprintf("%s (%s on disk%s)", l.DiffID, cli.HumanSize(uint64(max(0, l.Size))), saved))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	var cfg bytes.Buffer
	if err := json.Indent(&cfg, d.Config, "", "  "); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "Configuration\n%s\n", &cfg)
	return err
}
