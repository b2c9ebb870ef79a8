package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"monopod.dev/monopod/internal/runtime/imageservice"
)

func newImageCommand() *cobra.Command {
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
	cmd.PersistentFlags().StringVar(&socket, "cri-socket", defaultSocket, "socket `FILE` of the CRI runtime")
	cmd.AddCommand(newImageListCommand(&socket), newImagePullCommand(&socket), newImageLoadCommand(&socket), newImageSaveCommand(&socket),
		newImageInspectCommand(&socket), newImageRemoveCommand(&socket), newImagePruneCommand(&socket))
	return cmd
}

// someImages wants at least one IMAGE.
func someImages(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return &usageError{fmt.Errorf("name at least one image; see '%s --help'", cmd.CommandPath())}
	}
	return nil
}

// withImages runs f with the images of the runtime at a socket.
func withImages(socket string, f func(imageservice.Client) error) error {
	return withRuntime(socket, func(conn *grpc.ClientConn) error { return rpcError(conn, f(imageservice.Client{Conn: conn})) })
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

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// isTerminal says whether somebody types into f, or reads it.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// humanSize is a number of bytes as people read it, in decimal units as docker has it.
func humanSize(n uint64) string {
	units := []string{"B", "kB", "MB", "GB", "TB", "PB", "EB"}
	f, i := float64(n), 0
	for f >= 999.5 && i < len(units)-1 {
		f, i = f/1000, i+1
	}
	if i == 0 || f >= 99.5 {
		return fmt.Sprintf("%.0f %s", f, units[i])
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

// humanAge is how long ago t was, in one unit.
func humanAge(t, now time.Time) string {
	if t.Unix() <= 0 { // also what builds that can be reproduced write
		return "-"
	}
	d := now.Sub(t)
	for _, u := range []struct {
		name string
		d    time.Duration
	}{{"year", 365 * 24 * time.Hour}, {"month", 30 * 24 * time.Hour}, {"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}} {
		switch n := int(d / u.d); {
		case n > 1:
			return fmt.Sprintf("%d %ss ago", n, u.name)
		case n == 1:
			return fmt.Sprintf("1 %s ago", u.name)
		}
	}
	return "just now"
}
