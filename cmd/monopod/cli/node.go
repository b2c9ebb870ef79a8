package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"monopod.dev/monopod/internal/admin/client"
	"monopod.dev/monopod/internal/admin/protocol"
)

// DefaultAdminSocket is where the commands that ask a running node look for its administration socket.
var DefaultAdminSocket = filepath.Join("/run/monopod", protocol.SocketName)

// AdminSocketFlag gives a command, and those below it, --admin-socket.
func AdminSocketFlag(cmd *cobra.Command, socket *string) {
	cmd.PersistentFlags().StringVar(socket, "admin-socket", DefaultAdminSocket, "socket `FILE` of the node's administration, RUN-DIR/"+protocol.SocketName)
}

// WithNode runs f with the node at a socket.
func WithNode(socket string, f func(*client.Client) error) error {
	c := client.New(socket)
	defer c.Close()
	err := f(c)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("no node runs at %s: start 'monopod up', or name the socket of one that runs with --admin-socket RUN-DIR/%s (%w)", socket, protocol.SocketName, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("the node at %s does not run any more: start 'monopod up' again (%w)", socket, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("only root can use the node's socket %s: run this as root (%w)", socket, err)
	}
	return err
}

// Interrupted says that somebody who watches has seen enough: that is no failure.
func Interrupted(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled)
}
