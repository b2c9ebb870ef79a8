// Package image has the commands of a running node's images.
package image

import (
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/runtime/imageservice"
)

// Command is 'monopod image'.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Work with a running node's images: list, pull, load, save, inspect, remove, prune",
		Long: `Works with the images of a running node, over the socket of its runtime ('monopod up' or 'monopod runtime').

An IMAGE is a name (busybox, registry.example/team/app:1, busybox@sha256:...), an id, or the beginning of an
id. Short names are completed as docker does: busybox is docker.io/library/busybox:latest.

Exit codes: 0 if everything was done, 1 if something failed (standard error says what), 2 for an invalid command
line.`,
		Example: `  monopod image ls
  docker save app:1 | monopod image load
  monopod image save app:1 | ssh other monopod image load`,
	}
	var socket string
	cmd.PersistentFlags().StringVar(&socket, "cri-socket", cli.DefaultCRISocket, "socket `FILE` of the CRI runtime")
	cmd.AddCommand(newListCommand(&socket), newPullCommand(&socket), newLoadCommand(&socket), newSaveCommand(&socket),
		newInspectCommand(&socket), newRemoveCommand(&socket), newPruneCommand(&socket))
	return cmd
}

// someImages wants at least one IMAGE.
func someImages(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return &cli.UsageError{Err: fmt.Errorf("name at least one image; see '%s --help'", cmd.CommandPath())}
	}
	return nil
}

// withImages runs f with the images of the runtime at a socket.
func withImages(socket string, f func(imageservice.Client) error) error {
	return cli.WithRuntime(socket, func(conn *grpc.ClientConn) error { return cli.RPCError(conn, f(imageservice.Client{Conn: conn})) })
}
