package cli

import (
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// DefaultCRISocket is where the commands that talk to a running node look for its CRI socket.
var DefaultCRISocket = filepath.Join("/run/monopod", "cri.sock")

// WithRuntime runs f with a connection to the runtime's socket.
func WithRuntime(socket string, f func(*grpc.ClientConn) error) error {
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
