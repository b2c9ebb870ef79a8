package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"monopod.dev/monopod/internal/executor/protocol"
)

// execTerminal runs a process on a pty, whose master the executor sends over a socket.
func (r *Runner) execTerminal(ctx context.Context, req protocol.ExecRequest, in io.Reader, out io.Writer, resize <-chan remotecommand.TerminalSize) (protocol.Exit, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return protocol.Exit{}, err
	}
	defer ours.Close()
	defer theirs.Close()
	type result struct {
		resp protocol.ExecResponse
		err  error
	}
	ended := make(chan result, 1)
	go func() {
		resp, err := r.Executor.Exec(ctx, req, theirs)
		theirs.Close()
		ended <- result{resp, err}
	}()
	// The socket's other end is closed with the call, so this ends even if no pty comes.
	master, err := receiveFile(ours)
	if err != nil {
		res := <-ended
		if res.err != nil {
			return protocol.Exit{}, res.err
		}
		return protocol.Exit{}, fmt.Errorf("the executor sent no terminal: %w", err)
	}
	defer master.Close()
	sizes, stop := context.WithCancel(ctx)
	defer stop()
	go r.forwardSizes(sizes, req.ID, resize, func(size remotecommand.TerminalSize) error { return setSize(master, size) })
	if in != nil {
		go func() { _, _ = io.Copy(master, in) }()
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		client := &client{out: out}
		_, _ = io.Copy(client, master) // a pty's master fails with EIO when the last slave is closed
		if client.gone {
			master.Close() // the terminal is hung up: its processes get SIGHUP
		}
	}()
	res := <-ended
	_ = master.SetReadDeadline(time.Now().Add(drainBound))
	<-copied
	return res.resp.Exit, res.err
}

// client is a client's stream, or a client that does not want the output, which is then thrown away.
type client struct {
	out  io.Writer
	gone bool // a write has failed
}

func (c *client) Write(p []byte) (int, error) {
	if c.out == nil {
		return len(p), nil
	}
	n, err := c.out.Write(p)
	c.gone = c.gone || err != nil
	return n, err
}

// setSize sets a pty's window size, of which the kernel tells its foreground processes.
func setSize(master *os.File, size remotecommand.TerminalSize) error {
	raw, err := master.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = raw.Control(func(fd uintptr) {
		serr = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Height, Col: size.Width})
	})
	return errors.Join(err, serr)
}

// forwardSizes passes window sizes on until there are no more.
func (r *Runner) forwardSizes(ctx context.Context, id string, sizes <-chan remotecommand.TerminalSize, set func(remotecommand.TerminalSize) error) {
	for {
		select {
		case size, ok := <-sizes:
			if !ok {
				return
			}
			if err := set(size); err != nil && ctx.Err() == nil {
				r.Log.Debug("resize a terminal", "container", id, "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// socketPair makes a connected pair: one end to receive descriptors at, one to pass to another process.
func socketPair() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "terminal-socket")
	f := os.NewFile(uintptr(fds[0]), "terminal-socket")
	defer f.Close() // FileConn duplicates it
	conn, err := net.FileConn(f)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), theirs, nil // AF_UNIX by construction
}

// receiveFile receives one descriptor, and makes it one that reads with deadlines.
func receiveFile(conn *net.UnixConn) (*os.File, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		return nil, err
	}
	for _, m := range msgs {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil || len(fds) == 0 {
			continue
		}
		unix.CloseOnExec(fds[0])
		if err := unix.SetNonblock(fds[0], true); err != nil {
			unix.Close(fds[0])
			return nil, err
		}
		return os.NewFile(uintptr(fds[0]), "pty"), nil
	}
	return nil, errors.New("no descriptor in the message")
}
