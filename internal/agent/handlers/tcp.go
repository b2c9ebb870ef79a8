package handlers

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// dialer makes the connections of all probes and hooks. They linger for a second as a kubelet's do, so that thousands in a row leave few sockets
// that wait for their end (kubernetes/kubernetes#89898), and they are too short for keep-alives.
var dialer = net.Dialer{KeepAlive: -1, Control: func(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		// Without it a connection is as good, only its end takes longer.
		_ = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 1})
	})
}}

func probeTCP(ctx context.Context, on Subject, what *v1.TCPSocketAction, timeout time.Duration) Answer {
	port, err := portNumber(what.Port, on.Container)
	if err != nil {
		return Answer{Unknown, err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(cmp.Or(what.Host, on.IP), strconv.Itoa(port)))
	if err != nil {
		return Answer{Failure, err.Error()}
	}
	conn.Close()
	return Answer{Result: Success}
}

// portNumber is the port that a handler names: by number, by the name of one of the container's ports, or by a number written as a name.
func portNumber(port intstr.IntOrString, container *v1.Container) (int, error) {
	number := port.IntValue()
	if port.Type == intstr.String {
		for i := range container.Ports {
			if container.Ports[i].Name == port.StrVal {
				number = int(container.Ports[i].ContainerPort)
				break
			}
		}
		if number == 0 {
			return 0, fmt.Errorf("port %s not found: container %s has no port of this name", port.StrVal, container.Name)
		}
	}
	if number < 1 || number > 65535 {
		return 0, fmt.Errorf("invalid port number: %d", number)
	}
	return number, nil
}
