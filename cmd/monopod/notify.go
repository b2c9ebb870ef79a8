package main

import (
	"net"
	"os"
	"strings"
)

// notifyReady tells a service manager that asked for it that the service is ready (sd_notify(3)). Nobody listening is
// no error: the node is as ready as before.
func notifyReady() {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	if strings.HasPrefix(path, "@") {
		path = "\x00" + path[1:]
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = conn.Write([]byte("READY=1\n"))
}
