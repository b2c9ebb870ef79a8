package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/kit/pairs"
	"monopod.dev/monopod/internal/runtime/stream/wire"
)

// execTerminal runs a process on a pty, whose master the executor sends over a socket.
func (r *Runner) execTerminal(ctx context.Context, req protocol.ExecRequest, client wire.Streams) (protocol.Exit, error) {
	ours, theirs, err := pairs.Stream("terminal socket")
	if err != nil {
		return protocol.Exit{}, err
	}
	defer ours.Close()
	defer theirs.Close()
	select {
	case size := <-client.Sizes:
		req.Process.ConsoleSize = &specs.Box{Width: uint(size.Width), Height: uint(size.Height)}
	default: // it will be told
	}
	type result struct {
		exit protocol.Exit
		err  error
	}
	ended := make(chan result, 1)
	go func() {
		exit, err := r.execute(ctx, req, func() {}, theirs)
		theirs.Close()
		ended <- result{exit, err}
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
	// A client that has gone takes the terminal with it: what waits for its output or its input ends.
	defer context.AfterFunc(ctx, func() { master.Close() })()
	sizes, stop := context.WithCancel(ctx)
	defer stop()
	go r.forwardSizes(sizes, req.ID, client.Sizes, func(size wire.Size) error { return setSize(master, size) })
	if client.Stdin != nil {
		go func() {
			_, _ = io.Copy(master, client.Stdin)
			discard(client.Stdin)
		}()
	}
	out := client.Stdout
	if out == nil {
		out = io.Discard
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		if copyOutput(out, master) != nil {
			master.Close()
		}
	}()
	res := <-ended
	drainSoon(master)
	<-copied
	return res.exit, res.err
}

// setSize sets a pty's window size, of which the kernel tells its foreground processes.
func setSize(master *os.File, size wire.Size) error {
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

// forwardSizes passes window sizes on until ctx ends.
func (r *Runner) forwardSizes(ctx context.Context, id ids.ContainerID, sizes <-chan wire.Size, set func(wire.Size) error) {
	for {
		select {
		case size := <-sizes:
			if err := set(size); err != nil && ctx.Err() == nil {
				r.Log.Debug("resize a terminal", "container", id, "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
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
