package image

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/runtime/imageservice"
)

func newLoadCommand(socket *string) *cobra.Command {
	var req imageservice.LoadRequest
	var input string
	var quiet bool
	cmd := &cobra.Command{
		Use:   "load [FILE]",
		Short: "Add the images of an archive",
		Long: `Adds the images of an archive: a tar that is an OCI image layout, or that docker save has written, uncompressed
or compressed with gzip or zstd. Without FILE, or if FILE is -, it reads the archive from standard input.

From an image for several platforms, it takes the one for this machine. A tag that the node has already moves to
the loaded image. If the archive gives an image no name, use its id, or give it a name with --name. If the
command fails, nothing of the archive remains.`,
		Example: `  monopod image load app.tar.gz
  docker save app:1 | monopod image load
  skopeo copy docker-daemon:app:1 oci-archive:app.tar && monopod image load --name app:1 app.tar`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := input
			if len(args) > 0 {
				if file != "" {
					return &cli.UsageError{Err: fmt.Errorf("the archive is named twice: %s and --input %s", args[0], file)}
				}
				file = args[0]
			}
			if (file == "" || file == "-") && cli.IsTerminal(os.Stdin) {
				return &cli.UsageError{Err: errors.New("standard input is a terminal: name the archive's FILE, or pipe it in, as in: docker save app:1 | monopod image load")}
			}
			in := os.Stdin
			if file != "" && file != "-" {
				f, err := os.Open(file)
				if err != nil {
					return err
				}
				defer f.Close()
				in = f
			}
			return withImages(*socket, func(c imageservice.Client) error {
				loaded, err := c.Load(cmd.Context(), req, in)
				if err != nil {
					return err
				}
				for _, img := range loaded {
					switch {
					case quiet:
						fmt.Println(img.ID)
					case len(img.Names) == 0:
						fmt.Printf("loaded %s, which has no name: --name gives it one\n", img.ID)
					}
					for _, n := range img.Names {
						if !quiet {
							fmt.Println("loaded", n)
						}
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&req.Name, "name", "", "name the image `NAME`, whatever the archive says; for an archive of one image")
	cmd.Flags().StringVarP(&input, "input", "i", "", "the archive's `FILE`, as for docker load")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print the ids instead of the names")
	return cmd
}

func newSaveCommand(socket *string) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "save IMAGE... [-o FILE]",
		Short: "Write images to an archive",
		Long: `Writes images, each with all its tags, to one archive: an OCI image layout that is a docker-archive as well.
'monopod image load', docker load, podman load and ctr images import read it, and get the same image ids. Layers
are not compressed; for a small archive, pipe it through gzip or zstd. Saving the same images again produces
the same archive.

Without -o the archive goes to standard output, unless that is a terminal. A FILE appears only when it is
complete.

The node keeps no compressed layers: it rebuilds their tars from the unpacked files, byte for byte. This is not
possible for layers that were unpacked by a version of Monopod without this command; the error says so, and
what to do.`,
		Example: `  monopod image save -o images.tar app:1 db:2
  monopod image save app:1 | zstd > app.tar.zst
  monopod image save app:1 | docker load`,
		Args: someImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			if (output == "" || output == "-") && cli.IsTerminal(os.Stdout) {
				return &cli.UsageError{Err: errors.New("standard output is a terminal: name a file with -o FILE, or pipe it, as in: monopod image save app:1 | docker load")}
			}
			return withImages(*socket, func(c imageservice.Client) error {
				req := imageservice.SaveRequest{Images: args}
				if output == "" || output == "-" {
					return c.Save(cmd.Context(), req, os.Stdout)
				}
				return cli.WriteWhole(output, func(w io.Writer) error { return c.Save(cmd.Context(), req, w) })
			})
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "write the archive to `FILE`")
	cli.CompleteNames(cmd, true, imageNames(socket))
	return cmd
}
