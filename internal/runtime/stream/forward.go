package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/runtime/stream/wire"
)

// dialBound is how long a port of a pod may take to answer.
const dialBound = 10 * time.Second

// PortForward connects the client with a port of the sandbox's loopback device and copies in both directions until both have
// ended, or one of them is gone. An error is that of connecting.
func (r *Runner) PortForward(ctx context.Context, sandboxID ids.SandboxID, port uint16, client wire.Duplex) error {
	netns, err := r.Sandboxes.NetworkNamespace(sandboxID)
	if err != nil {
		return err
	}
	backend, err := dialLoopback(ctx, netns, port)
	if err != nil {
		return err // without the sandbox's id: the client has named the pod, and shows it
	}
	defer backend.Close()
	// The client's going ends what waits for the pod; the pod's what waits for the client ends with the session.
	defer context.AfterFunc(ctx, func() { backend.Close() })()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if _, err := io.Copy(backend, client); err != nil || backend.CloseWrite() != nil {
			backend.Close()
		}
	}()
	_, err = io.Copy(client, backend)
	if err != nil || client.CloseWrite() != nil {
		return nil
	}
	select {
	case <-gone:
	case <-ctx.Done():
	}
	return nil
}

// dialLoopback connects to a port in the network namespace at the path, or in this one if it is empty.
func dialLoopback(ctx context.Context, netns string, port uint16) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialBound)
	defer cancel()
	var failed error
	for _, ip := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		addr := netip.AddrPortFrom(ip, port)
		conn, err := dialIn(ctx, netns, addr)
		if err == nil {
			return conn, nil
		}
		if failed == nil {
			failed = fmt.Errorf("connect to %s: %w", addr, err)
		} else {
			failed = fmt.Errorf("%w; connect to %s: %w", failed, addr, err) // one line: kubectl writes one for each connection
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, failed
}

// dialIn connects to an address in a network namespace. Only making the socket needs a thread that is in it.
func dialIn(ctx context.Context, netns string, addr netip.AddrPort) (*net.TCPConn, error) {
	var family int
	var to unix.Sockaddr
	if addr.Addr().Is4() {
		family, to = unix.AF_INET, &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}
	} else {
		family, to = unix.AF_INET6, &unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()}
	}
	fd := -1
	open := func() (err error) {
		fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return err
	}
	var err error
	if netns == "" {
		err = open()
	} else {
		err = ns.Run(netns, ns.Network, open)
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), addr.String())
	defer f.Close()
	if err := connect(ctx, f, to); err != nil {
		return nil, err
	}
	conn, err := net.FileConn(f) // duplicates it
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil // a stream socket of AF_INET or AF_INET6
}

// connect connects a non-blocking socket.
func connect(ctx context.Context, f *os.File, to unix.Sockaddr) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var cerr error
	if err := raw.Control(func(fd uintptr) { cerr = unix.Connect(int(fd), to) }); err != nil {
		return err
	}
	if !errors.Is(cerr, unix.EINPROGRESS) && !errors.Is(cerr, unix.EINTR) {
		return cerr
	}
	defer context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Unix(1, 0)) })()
	err = raw.Write(func(fd uintptr) bool {
		// Waking up may say nothing: a new socket is ready for writing as well. It is connected once it has a peer.
		failed, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		switch {
		case err != nil:
			cerr = err
		case failed != 0:
			cerr = unix.Errno(failed)
		default:
			if _, err := unix.Getpeername(int(fd)); err != nil {
				return false
			}
			cerr = nil
		}
		return true
	})
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(err, cerr)
}
