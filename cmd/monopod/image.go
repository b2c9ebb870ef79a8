package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod.dev/monopod/internal/runtime/imageload"
)

func newImageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Load, pull, list and remove a running node's images",
	}
	var socket string
	cmd.PersistentFlags().StringVar(&socket, "cri-socket", defaultSocket, "the runtime's CRI socket (`FILE`)")
	cmd.AddCommand(
		&cobra.Command{
			Use:   "load FILE",
			Short: "Add the images of an archive (OCI image layout or `docker save`, gzip or not; '-' is standard input)",
			Args:  cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return withRuntime(socket, func(conn *grpc.ClientConn) error { return loadImage(cmd.Context(), conn, args[0]) })
			},
		},
		&cobra.Command{
			Use:   "pull REFERENCE",
			Short: "Pull an image from its registry",
			Args:  cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return withRuntime(socket, func(conn *grpc.ClientConn) error {
					r, err := cri.NewImageServiceClient(conn).PullImage(cmd.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: args[0]}})
					if err != nil {
						return rpcError(err)
					}
					fmt.Println(r.GetImageRef())
					return nil
				})
			},
		},
		&cobra.Command{
			Use:     "remove REFERENCE",
			Aliases: []string{"rm"},
			Short:   "Remove an image",
			Args:    cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return withRuntime(socket, func(conn *grpc.ClientConn) error {
					_, err := cri.NewImageServiceClient(conn).RemoveImage(cmd.Context(), &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: args[0]}})
					return rpcError(err)
				})
			},
		},
		newImageListCommand(&socket),
	)
	return cmd
}

func newImageListCommand(socket *string) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the images",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			return withRuntime(*socket, func(conn *grpc.ClientConn) error {
				r, err := cri.NewImageServiceClient(conn).ListImages(cmd.Context(), &cri.ListImagesRequest{})
				if err != nil {
					return rpcError(err)
				}
				return printImages(os.Stdout, r.GetImages(), output)
			})
		},
	}
	outputFlag(cmd, &output)
	return cmd
}

func printImages(w io.Writer, images []*cri.Image, output string) error {
	if output == "json" {
		return printJSON(w, images)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "NAME\tID\tSIZE")
	for _, img := range images {
		name := "<none>"
		if tags := img.GetRepoTags(); len(tags) > 0 {
			name = strings.Join(tags, ",")
		}
		id := strings.TrimPrefix(img.GetId(), "sha256:")
		fmt.Fprintf(tw, "%s\t%.13s\t%.1f MB\n", name, id, float64(img.GetSize())/1e6)
	}
	return tw.Flush()
}

func loadImage(ctx context.Context, conn *grpc.ClientConn, path string) error {
	in := os.Stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	names, err := imageload.Load(ctx, conn, in)
	if err != nil {
		return rpcError(err)
	}
	for _, n := range names {
		fmt.Println("loaded", n)
	}
	return nil
}

// withRuntime runs f with a connection to the runtime's socket.
func withRuntime(socket string, f func(*grpc.ClientConn) error) error {
	if _, err := os.Stat(socket); err != nil {
		return fmt.Errorf("no runtime is served at %s: start 'monopod up', or name its socket with --cri-socket (%w)", socket, err)
	}
	socket, err := filepath.Abs(socket) // a URL of a socket has an absolute path
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	return f(conn)
}

func outputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "table", "`FORMAT`: table or json")
}

func checkOutput(output string) error {
	if output != "table" && output != "json" {
		return &usageError{fmt.Errorf("--output is %q: use table or json", output)}
	}
	return nil
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
