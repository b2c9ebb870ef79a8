package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"monopod.dev/monopod/internal/admin/client"
	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/devices/hostnode"
)

func newDeviceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "device",
		Short: "List devices, give devices of the host to pods, test device plugins",
		Long: `Works with devices. 'ls' asks a running node, over its administration socket ('monopod up' or 'monopod node'),
which only root can reach. 'add' gives a device of the host to pods, and 'rm' takes it back. 'test' tests a
device plugin.

A device belongs to a resource (example.com/widget), which pods request in their limits. It comes from a CDI
spec or a device plugin. 'monopod cdi' shows what the host's CDI specs say, with or without a running node.

Exit codes: 0 if everything was done, 1 if something failed (standard error says what), 2 for an invalid command
line.`,
		Example: `  monopod device ls
  monopod device ls --watch example.com/widget
  monopod device test -- ./my-device-plugin`,
	}
	var socket string
	adminSocketFlag(cmd, &socket)
	cmd.AddCommand(newDeviceListCommand(&socket), newDeviceAddCommand(hostnode.ThisHost()), newDeviceRemoveCommand(&socket), newDeviceTestCommand())
	return cmd
}

// defaultAdminSocket is where the commands that ask a running node look for its administration socket.
var defaultAdminSocket = filepath.Join("/run/monopod", protocol.SocketName)

func adminSocketFlag(cmd *cobra.Command, socket *string) {
	cmd.PersistentFlags().StringVar(socket, "admin-socket", defaultAdminSocket, "socket `FILE` of the node's administration, RUN-DIR/"+protocol.SocketName)
}

// withNode runs f with the node at a socket.
func withNode(socket string, f func(*client.Client) error) error {
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

// The values of -o of commands that have all of them.
const (
	asTable = "table"
	asText  = "text"
	asWide  = "wide"
	asJSON  = "json"
	asYAML  = "yaml"
)

// formatFlag gives a command -o; the first of the formats is the default.
func formatFlag(cmd *cobra.Command, format *string, formats ...string) {
	last := len(formats) - 1
	cmd.Flags().StringVarP(format, "output", "o", formats[0], "output `FORMAT`: "+strings.Join(formats[:last], ", ")+" or "+formats[last])
	completeFormats(cmd, formats...)
	pre := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(formats, *format) {
			return &usageError{fmt.Errorf("--output is %q: use %s or %s", *format, strings.Join(formats[:last], ", "), formats[last])}
		}
		if pre != nil {
			return pre(cmd, args)
		}
		return nil
	}
}

// printValue writes a value as JSON or YAML.
func printValue(w io.Writer, format string, v any) error {
	if format == asJSON {
		return printJSON(w, v)
	}
	raw, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(raw)
	return err
}

// interrupted says that somebody who watches has seen enough: that is no failure.
func interrupted(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled)
}

// printCompact writes a value as one line of JSON.
func printCompact(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }
